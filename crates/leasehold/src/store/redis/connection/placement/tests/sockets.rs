//! Sockets with a placement: who reads a reply, and both directions at once.

use std::io::{Read, Write};
use std::pin::pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::super::dial::Dial;
use super::*;
use crate::store::redis::Address;

/// Gives a socket little buffer space.
fn small(stream: &impl std::os::fd::AsFd) {
    let socket = socket2::SockRef::from(stream);
    socket.set_send_buffer_size(32_768).unwrap();
    socket.set_recv_buffer_size(32_768).unwrap();
}

const MANY: usize = 1_000_000;

/// A peer that sends much data when told to, and reads only afterwards. Returns its address.
fn peer(begin: mpsc::Receiver<()>) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    crate::runtime::thread("peer".into(), move || {
        let (mut stream, _) = listener.accept().unwrap();
        small(&stream);
        begin.recv().ok();
        stream.write_all(&vec![7; MANY]).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).ok();
        stream.write_all(&heard.len().to_be_bytes()).unwrap();
    })
    .unwrap();
    address
}

/// Sends as much data, for which there is no buffer space: it progresses only if it reads the peer's data meanwhile.
async fn talk_both_ways(placement: Arc<Placement>) -> usize {
    let (begin, begins) = mpsc::channel();
    let stream = tokio::net::TcpStream::connect(peer(begins)).await.unwrap();
    small(&stream);
    let socket = placement.socket(stream.into_std().unwrap());
    let (mut reads, mut writes) = tokio::io::split(socket);
    let bytes = vec![7; MANY];
    let write = async {
        let mut all = pin!(writes.write_all(&bytes));
        let told = poll_fn(|context| {
            let written = all.as_mut().poll(context);
            if written.is_pending() {
                begin.send(()).ok();
            }
            written
        });
        told.await.unwrap();
        writes.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let read = async { reads.read_to_end(&mut heard).await.unwrap() };
    futures_util::join!(read, write);
    let (said, count) = heard.split_at(MANY);
    assert!(said.iter().all(|byte| *byte == 7));
    usize::from_be_bytes(count.try_into().unwrap())
}

#[test]
fn both_directions_go_on_while_there_is_no_room() {
    for has_caller_runtime in [true, false] {
        let caller_runtime = one_worker();
        let (tasks, open, _) = if has_caller_runtime {
            caller_runtime.block_on(async { client_thread() })
        } else {
            client_thread()
        };
        let (say, said) = mpsc::channel();
        let placement = Arc::new(Placement::new(true));
        let working = placement.clone();
        placement.run(&tasks, move || {
            let (placement, say) = (working.clone(), say.clone());
            async move { say.send(talk_both_ways(placement).await).unwrap() }
        });
        assert_eq!(
            said.recv_timeout(PLENTY),
            Ok(MANY),
            "caller runtime: {has_caller_runtime}"
        );
        drop(open);
    }
}

/// A peer that sends one byte whenever it is told to. Returns its address.
fn sender(tell: mpsc::Receiver<()>) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    crate::runtime::thread("sender".into(), move || {
        let (mut stream, _) = listener.accept().unwrap();
        while tell.recv().is_ok() {
            stream.write_all(&[7]).unwrap();
        }
    })
    .unwrap();
    address
}

/// Work that counts the bytes of a peer. The only thread of its runtime can be blocked, and so can the client thread.
struct Listener {
    scene: Scene,
    signals: Arc<Signals>,
    tell: mpsc::Sender<()>,
    heard: Arc<AtomicU64>,
}

impl Listener {
    /// `asks`: it writes a byte before each one that it reads.
    fn begin(caller_runtime: Runtime, asks: bool) -> Self {
        let (tell, told) = mpsc::channel();
        let (heard, placement) = (Arc::new(AtomicU64::new(0)), Arc::new(Placement::new(false)));
        let (working, counts, address) = (placement.clone(), heard.clone(), sender(told));
        let scene = Scene::of(caller_runtime, &placement, move |noted| {
            let (placement, heard, noted) = (working.clone(), counts.clone(), noted.work());
            async move {
                let stream = std::net::TcpStream::connect(address).unwrap();
                stream.set_nonblocking(true).unwrap();
                let mut socket = placement.socket(stream);
                let talk = async {
                    while (!asks || socket.write_u8(7).await.is_ok())
                        && socket.read_u8().await.is_ok()
                    {
                        heard.fetch_add(1, SeqCst);
                    }
                };
                futures_util::join!(talk, noted);
            }
            .boxed()
        });
        Self {
            scene,
            signals: placement.signals.clone(),
            tell,
            heard,
        }
    }

    /// The peer sends a byte, and the work reads it.
    fn hears(&self) {
        let before = self.heard.load(SeqCst);
        self.tell.send(()).unwrap();
        eventually(PLENTY, "it is read", || self.heard.load(SeqCst) > before);
    }

    /// Polls until the caller's runtime does so, and its reactor listens if there is one.
    fn moves_to_caller(&self) {
        let has_reactor = self.signals.caller_with_reactor().is_some();
        eventually(PLENTY, "the caller runtime polls", || {
            self.scene.noted.comes() != self.scene.client_thread
                && self.signals.listens_at_caller.load(SeqCst) == has_reactor
        });
    }
}

fn with_reactor() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn reply_needs_no_client_thread_while_caller_runtime_polls() {
    let listener = Listener::begin(with_reactor(), false);
    listener.moves_to_caller();
    let free = block(listener.scene.tasks.handle());
    // The client thread does not watch any more, so it takes nothing back.
    listener.moves_to_caller();
    for _ in 0..3 {
        listener.hears();
    }
    drop(free);
}

/// With a reactor or without one.
#[test]
fn client_thread_takes_over_while_caller_runtime_is_blocked() {
    for caller_runtime in [with_reactor(), one_worker()] {
        let listener = Listener::begin(caller_runtime, false);
        for _ in 0..3 {
            listener.moves_to_caller();
            listener.hears();
            let free = listener.scene.block();
            listener.hears();
            assert_eq!(listener.scene.noted.comes(), listener.scene.client_thread);
            drop(free);
            listener.hears();
        }
    }
}

/// Its reactor never reports anything, since there is always a task to run.
#[test]
fn reply_is_read_by_a_runtime_that_is_never_idle() {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).event_interval(u32::MAX);
    let listener = Listener::begin(runtime.enable_all().build().unwrap(), true);
    let test = Arc::new(());
    let goes_on = Arc::downgrade(&test);
    let busy = poll_fn(move |context| {
        if goes_on.upgrade().is_none() {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    drop(listener.scene.caller_runtime.as_ref().unwrap().spawn(busy));
    listener.moves_to_caller();
    let before = listener.heard.load(SeqCst);
    listener.tell.send(()).unwrap();
    eventually(PLENTY, "it is read", || {
        // Other requests keep the client thread from taking the socket.
        listener.scene.noted.comes();
        listener.heard.load(SeqCst) > before
    });
    drop(test);
}

#[test]
fn client_thread_takes_over_when_caller_runtime_has_ended() {
    for caller_runtime in [with_reactor(), one_worker()] {
        let mut listener = Listener::begin(caller_runtime, false);
        listener.moves_to_caller();
        drop(listener.scene.caller_runtime.take());
        listener.hears();
        assert_eq!(listener.scene.noted.comes(), listener.scene.client_thread);
    }
}

/// The bytes of an encrypted connection also pass through a placed socket.
#[test]
fn tls_connection_uses_a_placed_socket() {
    let server = testkit::RedisServer::builder().tls().start();
    let url = format!("rediss://127.0.0.1:{}/", server.tls_port());
    let address = Address::parse(&url).unwrap();
    let placement = Placement::new(true);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dial = Dial {
            address: &address,
            limit: PLENTY,
            clock: &Clock::system(),
            scripts: &Arc::default(),
            listener: &(Arc::new(drop) as crate::store::Listener),
            placement: Some(&placement),
        };
        let mut opening = pin!(dial.open());
        let greeted = poll_fn(|context| {
            let opened = opening.as_mut().poll(context);
            if placement.signals.poll_soon.load(SeqCst) {
                return Poll::Ready(());
            }
            if let Poll::Ready(opened) = opened {
                panic!("nothing was said: {:?}", opened.err());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        tokio::time::timeout(PLENTY, greeted).await.unwrap();
    });
}

/// A blocked caller takes the socket from the reactor while it spins. Later the client thread hears of what the peer sends.
#[test]
fn client_thread_reads_after_a_blocked_caller() {
    let (tasks, open, client_thread) = client_thread();
    let (tell, told) = mpsc::channel();
    let (say, said) = mpsc::channel();
    let asked = Arc::new(tokio::sync::Notify::new());
    let (placement, asks, address) = (Arc::new(Placement::new(true)), asked.clone(), sender(told));
    let working = placement.clone();
    placement.run(&tasks, move || {
        let (placement, say, asks) = (working.clone(), say.clone(), asks.clone());
        async move {
            let stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut socket = placement.socket(stream);
            for is_reply in [false, true, false] {
                if is_reply {
                    asks.notified().await;
                    socket.write_u8(7).await.unwrap();
                }
                socket.read_u8().await.unwrap();
                say.send(current().id()).unwrap();
            }
        }
    });
    let hears = || said.recv_timeout(PLENTY).unwrap();
    tell.send(()).unwrap();
    assert_eq!(hears(), client_thread);
    let now = Clock::system().now();
    let asks = poll_fn(|_| {
        asked.notify_one();
        Poll::<()>::Pending
    });
    // It returns once the spin is over.
    assert!(
        Blocked::here()
            .poll_until(Some(now), pin!(asks))
            .is_pending()
    );
    for _ in 0..2 {
        tell.send(()).unwrap();
        assert_eq!(hears(), client_thread);
    }
    drop(open);
}

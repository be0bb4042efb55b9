//! The placement, on real threads, and in as many schedules as shuttle draws.

use std::future::pending;
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex as Lock, mpsc};
use std::thread::{ThreadId, current};
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_fn};
use futures_util::task::AtomicWaker;
use shuttle::rand::{Rng, thread_rng};
use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::super::dial::open;
use super::*;
use crate::store::redis::Address;
use crate::sync::explore;

const PLENTY: Duration = Duration::from_secs(20);

/// Work that never ends and records which thread polled it.
#[derive(Default)]
struct Noted {
    threads: Lock<Vec<ThreadId>>,
    waker: AtomicWaker,
}

impl Noted {
    fn work(self: &Arc<Self>) -> BoxFuture<'static, ()> {
        let noted = self.clone();
        poll_fn(move |context| {
            noted.waker.register(context.waker());
            noted.threads.lock().unwrap().push(current().id());
            Poll::Pending
        })
        .boxed()
    }

    fn polls(&self) -> usize {
        self.threads.lock().unwrap().len()
    }

    /// The thread that polls after a wake.
    fn comes(&self) -> ThreadId {
        let before = self.polls();
        self.waker.wake();
        eventually(PLENTY, "the work is polled", || self.polls() > before);
        self.threads.lock().unwrap()[before]
    }
}

/// A client thread, and a runtime whose only thread can be blocked.
struct Scene {
    tasks: Tasks,
    caller_runtime: Option<Runtime>,
    /// Ends the client thread when dropped.
    open: Option<oneshot::Sender<()>>,
    client_thread: ThreadId,
    noted: Arc<Noted>,
}

fn one_worker() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).build().unwrap()
}

/// A client thread, beside the current runtime if there is one. It ends when the sender is dropped.
fn client_thread() -> (Tasks, oneshot::Sender<()>, ThreadId) {
    let (open, closed) = oneshot::channel();
    let (say, said) = mpsc::channel();
    let main = move || async move {
        say.send(current().id()).unwrap();
        drop(closed.await);
    };
    let tasks = Tasks::on_thread("client".into(), main).unwrap();
    (tasks, open, said.recv().unwrap())
}

impl Scene {
    fn begin(make: impl Fn(&Arc<Noted>) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        let caller_runtime = one_worker();
        let (tasks, open, client_thread) = caller_runtime.block_on(async { client_thread() });
        let noted = Arc::<Noted>::default();
        let placement = Placement::new();
        let same = noted.clone();
        placement.run(&tasks, Clock::system(), move || make(&same));
        eventually(PLENTY, "the work has begun", || noted.polls() > 0);
        Self {
            tasks,
            caller_runtime: Some(caller_runtime),
            open: Some(open),
            client_thread,
            noted,
        }
    }

    /// Blocks the runtime until the result is dropped.
    fn block(&self) -> mpsc::Sender<()> {
        let (free, freed) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let blocks = async move {
            say.send(()).unwrap();
            freed.recv().ok();
        };
        drop(self.caller_runtime.as_ref().unwrap().spawn(blocks));
        said.recv().unwrap();
        free
    }
}

#[test]
fn client_thread_takes_over_while_caller_runtime_is_blocked() {
    let scene = Scene::begin(Noted::work);
    for _ in 0..3 {
        eventually(PLENTY, "the caller runtime polls again", || {
            scene.noted.comes() != scene.client_thread
        });
        let free = scene.block();
        assert_eq!(scene.noted.comes(), scene.client_thread);
        assert_eq!(scene.noted.comes(), scene.client_thread);
        drop(free);
    }
}

#[test]
fn client_thread_takes_over_when_caller_runtime_has_ended() {
    let mut scene = Scene::begin(Noted::work);
    drop(scene.caller_runtime.take());
    assert_eq!(scene.noted.comes(), scene.client_thread);
}

#[test]
fn work_ends_with_client_though_caller_runtime_goes_on() {
    let mut scene = Scene::begin(Noted::work);
    let polls = scene.noted.polls();
    assert_eq!(
        Arc::strong_count(&scene.noted),
        3,
        "here, the maker, the work"
    );
    drop(scene.open.take());
    eventually(PLENTY, "it is dropped", || {
        Arc::strong_count(&scene.noted) == 1
    });
    assert!(scene.noted.polls() <= polls + 1);
    drop(scene.tasks);
}

#[test]
fn work_that_panics_on_caller_runtime_is_made_again() {
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let scene = Scene::begin(move |noted| {
        if count.fetch_add(1, SeqCst) == 0 {
            let noted = noted.clone();
            return poll_fn(move |_| -> Poll<()> {
                noted.threads.lock().unwrap().push(current().id());
                panic!("on purpose")
            })
            .boxed();
        }
        noted.work()
    });
    eventually(PLENTY, "it goes on", || scene.noted.polls() > 1);
    assert_eq!(scene.noted.comes(), scene.client_thread);
    assert_eq!(made.load(SeqCst), 2);
}

/// A caller, a socket, the caller's runtime and the client thread. The socket requests a poll only if the reactor
/// listens to it; otherwise a thread looks at it soon. The caller's runtime may end, or be blocked for good. A lost
/// request (N2) ends the schedule in a deadlock, and two polls at once (N1) in a panic.
#[test]
fn each_request_is_followed_by_a_poll_in_every_schedule() {
    const CALLS: [u64; 2] = [2, 6];
    explore(8_000, || async {
        let (asked, placement) = (Arc::new(AtomicU64::new(0)), Placement::new());
        let signals = placement.0.clone();
        let (wanted, clock) = (asked.clone(), Clock::manual());
        let (time, traffic) = (clock.clone(), signals.clone());
        let alone = crate::sync::AtomicBool::default();
        let polls = poll_fn(move |_| {
            assert!(!alone.swap(true, SeqCst), "another polls (N1)");
            let seen = wanted.load(SeqCst);
            time.advance(Duration::from_micros(30));
            traffic.wrote.store(thread_rng().gen_bool(0.5), SeqCst);
            assert!(alone.swap(false, SeqCst));
            if seen == CALLS[0] + CALLS[1] {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let polls = Lock::new(Some(polls.boxed()));
        let work = placement.work(&Tasks::explored(), clock, move || {
            let polls = polls.lock().unwrap().take();
            polls.unwrap_or_else(|| pending().boxed())
        });
        let caller_runtime = CallerRuntime(work.clone());
        // Its thread is busy with something else for a while, sometimes for good.
        let mut busy = 0_u32;
        let caller_runtime = shuttle::future::spawn(poll_fn(move |context| {
            if busy > 0 {
                busy -= 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            busy = if thread_rng().gen_bool(0.2) {
                thread_rng().gen_range(1..12)
            } else {
                0
            };
            if thread_rng().gen_bool(0.15) {
                return Poll::Pending;
            }
            caller_runtime.poll(context)
        }));
        let client_thread = shuttle::future::spawn(ticking(ClientThread(work)));
        let mut callers = Vec::new();
        for is_socket in [false, true] {
            let (asked, signals) = (asked.clone(), signals.clone());
            callers.push(shuttle::future::spawn(async move {
                for _ in 0..CALLS[usize::from(is_socket)] {
                    asked.fetch_add(1, SeqCst);
                    if !is_socket {
                        signals.request_poll();
                    } else if signals.reactor_listens.load(SeqCst) {
                        signals.request_poll_for_socket();
                    }
                    shuttle::future::yield_now().await;
                }
            }));
        }
        if thread_rng().gen_bool(0.2) {
            caller_runtime.abort();
        }
        for caller in callers {
            caller.await.unwrap();
        }
        client_thread.await.unwrap();
        caller_runtime.abort();
    });
}

/// As [`ClientThread::run`], with a tick whenever there is nothing to do.
async fn ticking(client_thread: ClientThread) {
    let mut was_overdue = false;
    loop {
        let watches = client_thread.0.signals.client_watches.load(SeqCst);
        let next = poll_fn(|context| match client_thread.poll(watches, context) {
            Poll::Pending if watches => Poll::Ready(None),
            polled => polled.map(Some),
        });
        match next.await {
            Some(NextPoll::Never) => return,
            Some(_) => was_overdue = false,
            None => {
                was_overdue = client_thread.check_caller(was_overdue);
                shuttle::future::yield_now().await;
            }
        }
    }
}

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
        let placement = Arc::new(Placement::new());
        let working = placement.clone();
        placement.run(&tasks, Clock::system(), move || {
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

/// The bytes of an encrypted connection also pass through a placed socket.
#[test]
fn tls_connection_uses_a_placed_socket() {
    let server = testkit::RedisServer::builder().tls().start();
    let url = format!("rediss://127.0.0.1:{}/", server.tls_port());
    let address = Address::parse(&url).unwrap();
    let placement = Placement::new();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = redis::AsyncConnectionConfig::new();
        let settings = address.info().redis_settings();
        let mut opening = pin!(open(&address, settings, config, Some(&placement)));
        let greeted = poll_fn(|context| {
            let opened = opening.as_mut().poll(context);
            if placement.0.wrote.load(SeqCst) {
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

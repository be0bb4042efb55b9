//! A TCP proxy that makes the network between a client and a server fail in chosen ways. It does
//! not look into the bytes, and forwards none after `cut` has returned.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::net::{listen, local_port};
use crate::wait::lock;

/// How soon a pump that holds bytes notices a changed delay.
const POLL: Duration = Duration::from_millis(5);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A TCP proxy on 127.0.0.1 in front of a port.
///
/// Controls take effect at once, on existing and on new connections, and can be combined. When
/// either side closes, the other is closed as soon as all bytes have been forwarded. Dropping the
/// proxy closes everything.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: AtomicU16,
    state: Mutex<ProxyState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Faults {
    swallow: bool,
    blackhole: bool,
    refuse: bool,
    delay: Duration,
}

#[derive(Debug, Default)]
struct ProxyState {
    faults: Faults,
    stopping: bool,
    accepted: usize,
    swallowed: u64,
    /// Open connections by number; a connection that is absent has been closed.
    open: HashMap<usize, Vec<TcpStream>>,
    /// The numbers up to this one are half-open.
    stranded: usize,
}

impl FaultProxy {
    /// Starts a proxy in front of `upstream_port` of 127.0.0.1, without any fault. Each connection
    /// connects to the upstream again, so it may be restarted meanwhile. While the upstream does not
    /// listen, connections are accepted and closed.
    pub fn start(upstream_port: u16) -> Self {
        let listener = listen();
        let port = local_port(&listener);
        let shared = Arc::new(Shared {
            upstream: AtomicU16::new(upstream_port),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self {
            port,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT/`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// While on, replies of the server are read and discarded: a command is executed, its reply is
    /// lost, the connection stays open. Wait for [`swallowed`](Self::swallowed) to grow before
    /// switching it off, or the reply may not have reached the proxy yet.
    pub fn swallow_replies(&self, on: bool) {
        self.shared.change(|state| state.faults.swallow = on);
    }

    /// While on, the proxy reads and forwards nothing in either direction, not even a close. When
    /// switched off, all delayed bytes flow again: they are late, not lost.
    pub fn blackhole(&self, on: bool) {
        self.shared.change(|state| state.faults.blackhole = on);
    }

    /// Makes all existing connections half-open: they forward nothing from then on, not even a close,
    /// as if a firewall had forgotten them. New connections work.
    pub fn strand(&self) {
        self.shared.change(|state| state.stranded = state.accepted);
    }

    /// Delays all bytes by this time, in each direction. As on a long cable, the delays of consecutive
    /// bytes do not add up.
    pub fn delay(&self, by: Duration) {
        self.shared.change(|state| state.faults.delay = by);
    }

    /// While on, new connections are accepted and closed at once. Existing ones go on.
    pub fn refuse(&self, on: bool) {
        self.shared.change(|state| state.faults.refuse = on);
    }

    /// Connects new connections to this port, as after a DNS change. Existing ones go on.
    pub fn redirect(&self, upstream_port: u16) {
        self.shared.upstream.store(upstream_port, Ordering::SeqCst);
    }

    /// Closes all existing connections on both sides. After it returns, no byte is forwarded. A
    /// connection that was made but not accepted here yet (see [`accepted`](Self::accepted)) is not
    /// affected.
    pub fn cut(&self) {
        self.shared.change(ProxyState::cut);
    }

    /// Closes all existing connections and stops discarding replies, in one step: no reply that was
    /// to be lost arrives, and no reply of a later connection is lost.
    pub fn cut_and_answer(&self) {
        self.shared.change(|state| {
            state.cut();
            state.faults.swallow = false;
        });
    }

    /// How many connections are open now.
    pub fn connections(&self) -> usize {
        lock(&self.shared.state).open.len()
    }

    /// How many connections have been accepted so far, refused ones included.
    pub fn accepted(&self) -> usize {
        lock(&self.shared.state).accepted
    }

    /// How many bytes of replies have been discarded so far.
    pub fn swallowed(&self) -> u64 {
        lock(&self.shared.state).swallowed
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.stopping = true;
            state.cut();
        });
        // Only a connection wakes a blocking `accept`.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let woken = TcpStream::connect_timeout(&address, CONNECT_LIMIT).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            acceptor.join().ok();
        }
    }
}

impl ProxyState {
    fn cut(&mut self) {
        for stream in self.open.drain().flat_map(|(_, streams)| streams) {
            close(&stream);
        }
    }
}

impl Shared {
    fn change(&self, act: impl FnOnce(&mut ProxyState)) {
        act(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn close(&self, id: usize) {
        self.change(|state| {
            for stream in state.open.remove(&id).into_iter().flatten() {
                close(&stream);
            }
        });
    }

    /// Adds a stream to close with connection `id`, unless that is closed already.
    fn enlist(&self, id: usize, stream: &TcpStream) -> Option<()> {
        let handle = stream.try_clone().ok()?;
        lock(&self.state).open.get_mut(&id)?.push(handle);
        Some(())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, ProxyState>) -> MutexGuard<'a, ProxyState> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shuts down the socket, which also ends reads and writes in other threads.
fn close(stream: &TcpStream) {
    stream.shutdown(Shutdown::Both).ok();
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for client in listener.incoming() {
        threads.retain(|thread| !thread.is_finished());
        let Ok(client) = client else {
            // Probably out of file descriptors: wait until there are some again.
            thread::sleep(POLL);
            continue;
        };
        let id = {
            let mut state = lock(&shared.state);
            if state.stopping {
                break;
            }
            state.accepted += 1;
            if state.faults.refuse {
                continue;
            }
            let id = state.accepted;
            state.open.insert(id, Vec::new());
            id
        };
        let shared = Arc::clone(shared);
        threads.push(thread::spawn(move || {
            serve(id, &client, &shared);
            shared.close(id);
        }));
    }
    for thread in threads {
        thread.join().ok();
    }
}

/// Runs one connection until either side has closed it; `None` if it was never established.
fn serve(id: usize, client: &TcpStream, shared: &Arc<Shared>) -> Option<()> {
    shared.enlist(id, client)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, shared.upstream.load(Ordering::SeqCst)));
    let server = TcpStream::connect_timeout(&address, CONNECT_LIMIT).ok()?;
    shared.enlist(id, &server)?;
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let pump = |direction| Pump {
        id,
        direction,
        shared,
        held: VecDeque::new(),
    };
    thread::scope(|scope| {
        scope.spawn(|| pump(Direction::ToClient).run(&server, client));
        pump(Direction::ToServer).run(client, &server);
    });
    Some(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// Bytes in transit, with their time of arrival; no bytes for "the sender has closed".
struct Chunk {
    bytes: Vec<u8>,
    came: Instant,
}

/// One direction of one connection.
struct Pump<'a> {
    id: usize,
    direction: Direction,
    shared: &'a Shared,
    held: VecDeque<Chunk>,
}

enum NextAction {
    /// The connection has been closed.
    End,
    /// Bytes are due.
    Forward(Chunk),
    /// Nothing is due for this long (`None`: nothing is held).
    Read(Option<Duration>),
}

impl Pump<'_> {
    fn run(mut self, from: &TcpStream, to: &TcpStream) {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let going_on = match self.next() {
                NextAction::End => false,
                NextAction::Forward(chunk) => !chunk.bytes.is_empty() && write(to, &chunk.bytes),
                NextAction::Read(limit) => self.read(from, limit, &mut buffer),
            };
            if !going_on {
                break;
            }
        }
        self.shared.close(self.id);
    }

    /// The next action; blocks while the black hole is on.
    fn next(&mut self) -> NextAction {
        let mut state = lock(&self.shared.state);
        loop {
            if !state.open.contains_key(&self.id) {
                return NextAction::End;
            }
            if !state.faults.blackhole && self.id > state.stranded {
                break;
            }
            state = self.shared.wait(state);
        }
        self.swallow(&mut state);
        let Some(first) = self.held.front() else {
            return NextAction::Read(None);
        };
        let left = state.faults.delay.saturating_sub(first.came.elapsed());
        if !left.is_zero() {
            return NextAction::Read(Some(left.min(POLL)));
        }
        self.held
            .pop_front()
            .map_or(NextAction::Read(None), NextAction::Forward)
    }

    /// Discards the held bytes if replies are to be swallowed; a close by the server is still
    /// forwarded.
    fn swallow(&mut self, state: &mut ProxyState) {
        if state.faults.swallow && self.direction == Direction::ToClient {
            let bytes: usize = self.held.iter().map(|chunk| chunk.bytes.len()).sum();
            state.swallowed += bytes as u64;
            self.held.retain(|chunk| chunk.bytes.is_empty());
        }
    }

    /// Reads the available bytes into `held`; false if the connection failed.
    fn read(&mut self, mut from: &TcpStream, limit: Option<Duration>, buffer: &mut [u8]) -> bool {
        if self.held.back().is_some_and(|last| last.bytes.is_empty()) {
            // The sender has closed: only the delay remains.
            thread::sleep(limit.unwrap_or_default());
            return true;
        }
        // Never zero, which `set_read_timeout` does not take.
        let limit = limit.map(|limit| limit.max(Duration::from_micros(100)));
        if from.set_read_timeout(limit).is_err() {
            return false;
        }
        match from.read(buffer) {
            Ok(count) => {
                let bytes = buffer[..count].to_vec();
                self.held.push_back(Chunk {
                    bytes,
                    came: Instant::now(),
                });
                true
            }
            Err(error) => matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ),
        }
    }
}

fn write(mut to: &TcpStream, bytes: &[u8]) -> bool {
    to.write_all(bytes).is_ok()
}

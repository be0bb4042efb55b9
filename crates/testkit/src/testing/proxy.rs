//! A TCP proxy that makes the network between a client and a server fail in chosen ways. It looks
//! into the bytes only for a command that it is to hold or to refuse, and forwards none after `cut` has returned.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::hold::Hold;
use super::net::{listen, local_port};
use super::pump::Pump;
use super::shared::{Direction, Hole, POLL, ProxyState, Shared};
use super::wait::lock;

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
        self.hold_up(on.then_some(Hole {
            requests: true,
            replies: true,
            half: None,
        }));
    }

    /// A [`blackhole`](Self::blackhole) for some bytes only, or none. Returns how many open connections it is on.
    pub fn hold_up(&self, hole: Option<Hole>) -> usize {
        self.shared.change(|state| state.faults.hole = hole);
        let state = lock(&self.shared.state);
        let is_on = |id: &&usize| hole.is_some_and(|hole| hole.is_on(**id));
        state.open.keys().filter(is_on).count()
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

    /// Holds the next command of this name, and all bytes that follow it on its connection, until [`go_on`](Self::go_on). It holds one
    /// command: the next one of this name passes.
    pub fn hold_at(&self, command: &str) {
        self.shared.change(|state| state.hold = Hold::at(command));
    }

    /// Lets the next command of this name pass, and holds all bytes that follow it on its connection until [`go_on`](Self::go_on). A
    /// client that waits for each reply has had the reply when its next command is held.
    pub fn hold_after(&self, command: &str) {
        self.shared
            .change(|state| state.hold = Hold::after(command));
    }

    /// Whether a command is held now.
    pub fn is_holding(&self) -> bool {
        lock(&self.shared.state).hold.is_holding()
    }

    /// Forwards the held bytes, and holds nothing more.
    pub fn go_on(&self) {
        self.shared.change(|state| state.hold = Hold::default());
    }

    /// Refuses all commands that begin with these words, in the server's place: `deny("CLIENT TRACKING", "ERR not here")`. The words of
    /// the refusal have no `]`.
    pub fn deny(&self, command: &str, words: &str) {
        self.shared.change(|state| state.denied.add(command, words));
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

    /// How many bytes of clients have arrived so far, also those that are delayed or held back.
    pub fn received(&self) -> u64 {
        lock(&self.shared.state).received
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
    let pump = |direction| Pump::new(id, direction, shared);
    thread::scope(|scope| {
        scope.spawn(|| pump(Direction::ToClient).run(&server, client));
        pump(Direction::ToServer).run(client, &server);
    });
    Some(())
}

//! The network path from the workers to the server: a proxy that can delay some connections and connect to another server. It
//! loses bytes only by closing a connection, and forwards none that are delayed or cut.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// For a connection to a server of this host.
const CONNECT: Duration = Duration::from_secs(5);

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// A delay of some connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) requests: bool,
    pub(super) replies: bool,
    /// Of every second connection, chosen by this remainder of its number; of all if there is none.
    pub(super) half: Option<u64>,
}

impl Hole {
    const fn swallows(self, id: u64, lane: Direction) -> bool {
        let lanes = match lane {
            Direction::Requests => self.requests,
            Direction::Replies => self.replies,
        };
        lanes && self.concerns(id)
    }

    const fn concerns(self, id: u64) -> bool {
        match self.half {
            Some(half) => id % 2 == half % 2,
            None => true,
        }
    }
}

/// A local port that forwards to a server. Dropping it cuts all connections.
#[derive(Debug)]
pub(super) struct NetworkPath {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<PathState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PathState {
    /// The target port; `None` for now, or for good.
    to: Option<u16>,
    ended: bool,
    hole: Option<Hole>,
    /// How late the bytes of each packet are forwarded.
    slow_by: Duration,
    next: u64,
    /// Both ends of the open connections.
    open: BTreeMap<u64, [TcpStream; 2]>,
}

impl PathState {
    fn cut(&mut self) {
        for stream in std::mem::take(&mut self.open).into_values().flatten() {
            close(&stream);
        }
    }
}

impl NetworkPath {
    /// A proxy to the server on this port.
    pub(super) fn to(port: u16) -> Result<Self, String> {
        let refused = |error: std::io::Error| format!("cannot make a proxy to the server: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused)?;
        let network = Self {
            port: listener.local_addr().map_err(refused)?.port(),
            shared: Arc::default(),
        };
        network.shared.lock().to = Some(port);
        let shared = network.shared.clone();
        start(move || accept(&listener, &shared)).map_err(refused)?;
        Ok(network)
    }

    /// The port that workers connect to.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT/`
    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Starts this delay, until [`NetworkPath::clear`]. Returns how many connections it concerns now; if none, it does not start.
    pub(super) fn hold_up(&self, hole: Hole) -> usize {
        let mut state = self.shared.lock();
        let concerned = state.open.keys().filter(|id| hole.concerns(**id)).count();
        if concerned > 0 {
            state.hole = Some(hole);
        }
        concerned
    }

    /// Starts this delay, also of later connections, until [`NetworkPath::clear`].
    pub(super) fn block(&self, hole: Hole) {
        self.shared.lock().hole = Some(hole);
    }

    /// Forwards each packet so much later from now on.
    pub(super) fn slow_down(&self, by: Duration) {
        self.shared.lock().slow_by = by;
    }

    /// Forwards the delayed bytes.
    pub(super) fn clear(&self) {
        self.shared.lock().hole = None;
        self.shared.changed.notify_all();
    }

    /// Cuts all connections, and refuses new ones.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.to = None;
        state.cut();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Forwards to the server on this port from now on.
    pub(super) fn lead_to(&self, port: u16) {
        self.shared.lock().to = Some(port);
    }
}

impl Drop for NetworkPath {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.close();
        // Only a connection wakes the accepting thread. Without one, the thread ends with the process.
        let _woken = TcpStream::connect_timeout(&local(self.port), CONNECT).is_ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PathState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while this direction of this connection is delayed. Returns whether it is still open then.
    fn is_clear(&self, id: u64, lane: Direction) -> bool {
        let mut state = self.lock();
        loop {
            if !state.open.contains_key(&id) {
                return false;
            }
            if !state.hole.is_some_and(|hole| hole.swallows(id, lane)) {
                return true;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Shuts down a socket, which also ends reads and writes of other threads.
fn close(stream: &TcpStream) {
    // An error means that it is already closed.
    let _closed = stream.shutdown(Shutdown::Both).is_ok();
}

fn start(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = thread::Builder::new().name("network".into());
    thread.spawn(work).map(drop)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let to = {
            let state = shared.lock();
            if state.ended {
                return;
            }
            state.to
        };
        let (Ok(client), Some(to)) = (client, to) else {
            // Probably out of descriptors: wait for some.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let shared = shared.clone();
        // Without a thread the client is cut, and connects again.
        let carrying = move || {
            let _came_about: Option<()> = carry(&client, to, &shared);
        };
        let _started = start(carrying).is_ok();
    }
}

/// Forwards one connection until either side ends it. `None` if it was never established.
fn carry(client: &TcpStream, to: u16, shared: &Arc<Shared>) -> Option<()> {
    let server = TcpStream::connect_timeout(&local(to), CONNECT).ok()?;
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let ends = [client.try_clone().ok()?, server.try_clone().ok()?];
    let id = {
        let mut state = shared.lock();
        // The target may have changed meanwhile.
        if state.to != Some(to) {
            return None;
        }
        state.next += 1;
        let id = state.next;
        state.open.insert(id, ends);
        id
    };
    thread::scope(|scope| {
        let replies = || pass(shared, id, Direction::Replies, &server, client);
        let started = thread::Builder::new()
            .name("network".into())
            .spawn_scoped(scope, replies);
        if started.is_ok() {
            pass(shared, id, Direction::Requests, client, &server);
        }
        end(shared, id);
    });
    Some(())
}

fn pass(shared: &Shared, id: u64, lane: Direction, mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // The close of a side is delayed as well.
        let read = from.read(&mut buffer).unwrap_or(0);
        let slow_by = shared.lock().slow_by;
        if !slow_by.is_zero() {
            thread::sleep(slow_by);
        }
        if !shared.is_clear(id, lane) || read == 0 || to.write_all(&buffer[..read]).is_err() {
            return end(shared, id);
        }
    }
}

fn end(shared: &Shared, id: u64) {
    let ends = shared.lock().open.remove(&id);
    ends.iter().flatten().for_each(close);
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo server.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        start(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                start(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
                })
                .unwrap();
            }
        })
        .unwrap();
        port
    }

    fn ask(mut stream: &TcpStream, byte: u8) -> Option<u8> {
        let mut answer = [0];
        stream.write_all(&[byte]).ok()?;
        stream.read_exact(&mut answer).ok()?;
        Some(answer[0])
    }

    fn connect(network: &NetworkPath) -> TcpStream {
        let stream = TcpStream::connect(local(network.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    #[test]
    fn delayed_packets_arrive_late_and_every_second_is_on_time() {
        let network = NetworkPath::to(echo()).unwrap();
        let first = connect(&network);
        // It has its number when it is answered.
        assert_eq!(ask(&first, 1), Some(1));
        let second = connect(&network);
        assert_eq!(ask(&second, 2), Some(2));
        for (requests, replies) in [(true, true), (true, false), (false, true)] {
            let hole = |half| Hole {
                requests,
                replies,
                half,
            };
            assert_eq!(network.hold_up(hole(Some(1))), 1);
            (&first).write_all(&[7]).unwrap();
            assert_eq!(ask(&second, 8), Some(8));
            first
                .set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            let mut byte = [0];
            (&first).read_exact(&mut byte).unwrap_err();
            network.clear();
            first
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            (&first).read_exact(&mut byte).unwrap();
            assert_eq!(byte, [7]);
        }
    }

    #[test]
    fn when_it_is_closed_nothing_passes_until_it_leads_to_another() {
        let network = NetworkPath::to(echo()).unwrap();
        let before = connect(&network);
        assert_eq!(ask(&before, 1), Some(1));
        network.close();
        assert_eq!(ask(&before, 2), None);
        assert_eq!(ask(&connect(&network), 3), None);
        network.lead_to(echo());
        // Open until it is counted.
        let after = connect(&network);
        assert_eq!(ask(&after, 4), Some(4));
        assert_eq!(
            network.hold_up(Hole {
                requests: true,
                replies: true,
                half: Some(1)
            }) + network.hold_up(Hole {
                requests: true,
                replies: true,
                half: Some(0)
            }),
            1
        );
    }
}

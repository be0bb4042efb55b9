//! What a proxy and the pumps of its connections share: the faults, and the open connections.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::AtomicU16;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::deny::Denied;
use super::hold::Hold;
use super::wait::lock;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// How soon a pump that holds bytes notices a changed delay.
pub(crate) const POLL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: AtomicU16,
    pub(crate) state: Mutex<ProxyState>,
    pub(crate) changed: Condvar,
}

/// The bytes that a proxy delays until it is told otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Hole {
    /// Those of the clients.
    pub requests: bool,
    /// Those of the server.
    pub replies: bool,
    /// Only on every second connection: those whose number has this remainder by two.
    pub half: Option<u64>,
}

impl Hole {
    pub(crate) fn is_on(self, id: usize) -> bool {
        self.half.is_none_or(|half| id as u64 % 2 == half % 2)
    }

    pub(crate) fn delays(self, id: usize, direction: Direction) -> bool {
        let is_delayed = match direction {
            Direction::ToServer => self.requests,
            Direction::ToClient => self.replies,
        };
        is_delayed && self.is_on(id)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) swallow: bool,
    pub(crate) hole: Option<Hole>,
    pub(crate) refuse: bool,
    pub(crate) delay: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct ProxyState {
    pub(crate) faults: Faults,
    pub(crate) hold: Hold,
    pub(crate) denied: Denied,
    pub(crate) stopping: bool,
    pub(crate) accepted: usize,
    pub(crate) swallowed: u64,
    pub(crate) received: u64,
    /// Open connections by number; a connection that is absent has been closed.
    pub(crate) open: HashMap<usize, Vec<TcpStream>>,
    /// The numbers up to this one are half-open.
    pub(crate) stranded: usize,
}

impl ProxyState {
    pub(crate) fn cut(&mut self) {
        self.hold.cut();
        for stream in self.open.drain().flat_map(|(_, streams)| streams) {
            close(&stream);
        }
    }
}

impl Shared {
    pub(crate) fn change(&self, act: impl FnOnce(&mut ProxyState)) {
        act(&mut lock(&self.state));
        self.changed.notify_all();
    }

    pub(crate) fn close(&self, id: usize) {
        self.change(|state| {
            for stream in state.open.remove(&id).into_iter().flatten() {
                close(&stream);
            }
        });
    }

    /// Adds a stream to close with connection `id`, unless that is closed already.
    pub(crate) fn enlist(&self, id: usize, stream: &TcpStream) -> Option<()> {
        let handle = stream.try_clone().ok()?;
        lock(&self.state).open.get_mut(&id)?.push(handle);
        Some(())
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, ProxyState>) -> MutexGuard<'a, ProxyState> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shuts down the socket, which also ends reads and writes in other threads.
fn close(stream: &TcpStream) {
    stream.shutdown(Shutdown::Both).ok();
}

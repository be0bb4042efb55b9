//! One direction of one connection through the proxy: bytes that wait, and the faults that hold or discard them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::deny::Requests;
use super::shared::{Direction, POLL, ProxyState, Shared};
use super::wait::lock;

/// Bytes in transit, with their time of arrival; no bytes for "the sender has closed".
struct Chunk {
    bytes: Vec<u8>,
    came: Instant,
}

/// One direction of one connection.
pub(crate) struct Pump<'a> {
    id: usize,
    direction: Direction,
    shared: &'a Shared,
    held: VecDeque<Chunk>,
    requests: Requests,
}

enum NextAction {
    /// The connection has been closed.
    End,
    /// Bytes are due.
    Forward(Chunk),
    /// Nothing is due for this long (`None`: nothing is held).
    Read(Option<Duration>),
}

impl<'a> Pump<'a> {
    pub(crate) fn new(id: usize, direction: Direction, shared: &'a Shared) -> Self {
        Self {
            id,
            direction,
            shared,
            held: VecDeque::new(),
            requests: Requests::default(),
        }
    }

    pub(crate) fn run(mut self, from: &TcpStream, to: &TcpStream) {
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

    /// The next action; blocks while bytes are held and the black hole is on.
    fn next(&mut self) -> NextAction {
        let mut state = lock(&self.shared.state);
        loop {
            if !state.open.contains_key(&self.id) {
                return NextAction::End;
            }
            let is_held = self.direction == Direction::ToServer
                && self
                    .held
                    .front()
                    .is_some_and(|first| state.hold.holds(self.id, &first.bytes));
            let hole = state.faults.hole;
            let is_stuck = hole.is_some_and(|hole| hole.delays(self.id, self.direction))
                || self.id <= state.stranded;
            // The first bytes in a black hole are read, so that `received` counts them whenever the hole began.
            if !is_held && (!is_stuck || self.held.is_empty()) {
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
        let Some(mut due) = self.held.pop_front() else {
            return NextAction::Read(None);
        };
        if self.direction == Direction::ToServer {
            state.hold.forwarded(self.id, &due.bytes);
            if !state.denied.is_empty() && !due.bytes.is_empty() {
                due.bytes = self.requests.pass(&due.bytes, &state.denied);
                if due.bytes.is_empty() {
                    return NextAction::Read(Some(POLL));
                }
            }
        }
        NextAction::Forward(due)
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
                if self.direction == Direction::ToServer {
                    lock(&self.shared.state).received += count as u64;
                }
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

//! The events for the parent process: NDJSON on stdout. A slow reader never blocks the lock holder.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::output;

/// The number of unread events after which the parent counts as gone.
const UNREAD: usize = 1024;

/// The time limit for writing the last events.
const LAST: Duration = Duration::from_secs(1);

/// An event of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum HoldEvent {
    /// The lock is busy. Sent again when the place in the queue or the holder changes.
    Waiting {
        lock: String,
        ahead: u32,
        holder: String,
        holder_fence: Option<u64>,
        waited_ms: u64,
    },
    /// The lock is held from now on.
    Acquired {
        lock: String,
        fence: u64,
        token: String,
        waited_ms: u64,
        ttl_ms: u64,
        valid_for_ms: u64,
    },
    /// A renewal failed. The lock is held for `valid_for_ms` more; the renewal is retried.
    Doubtful { valid_for_ms: u64, reason: String },
    /// A renewal succeeded after a failed one.
    Renewed { valid_for_ms: u64 },
    /// The answer to `check`.
    State {
        held: bool,
        doubtful: bool,
        valid_for_ms: u64,
        fence: Option<u64>,
    },
    /// The lock was lost: the last event.
    Lost { cause: String, code: u8 },
    /// The lock was released: the last event. If not `confirmed`, the store did not answer and the TTL ends the
    /// lease.
    Released { confirmed: bool },
    /// The lock was busy and waiting was not allowed: the last event.
    Busy { code: u8, message: String },
    /// The lock was busy until the time limit: the last event.
    Timeout { code: u8, message: String },
    /// The parent cancelled before the lock was held: the last event.
    Cancelled { code: u8, message: String },
    /// With a code, the error that ends this process: the last event. Without a code, the error in a line of
    /// stdin.
    Error { code: Option<u8>, message: String },
}

impl HoldEvent {
    /// True for an event that ends the stream.
    fn is_last(&self) -> bool {
        match self {
            Self::Error { code, .. } => code.is_some(),
            Self::Waiting { .. }
            | Self::Acquired { .. }
            | Self::Doubtful { .. }
            | Self::Renewed { .. }
            | Self::State { .. } => false,
            _ => true,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.hold/1")]
struct EventLine<'a> {
    #[serde(flatten)]
    event: &'a HoldEvent,
}

/// The stream of events to the parent.
pub(super) struct Events {
    lines: SyncSender<String>,
    writer: JoinHandle<io::Result<()>>,
    /// Closed when the writer has ended.
    done: Receiver<()>,
    is_broken: bool,
    is_over: bool,
}

impl Events {
    /// Starts the writer thread.
    pub(super) fn open() -> io::Result<Self> {
        let (lines, written) = sync_channel::<String>(UNREAD);
        let (finish, done) = sync_channel(0);
        let write = move || {
            let _until_the_end: SyncSender<()> = finish;
            // Writes each line with one call. After a failure the channel closes, which the sender notices.
            written
                .iter()
                .try_for_each(|line| output::write(line.as_bytes()))
        };
        let writer = thread::Builder::new().name("events".into()).spawn(write)?;
        Ok(Self {
            lines,
            writer,
            done,
            is_broken: false,
            is_over: false,
        })
    }

    /// Sends an event without waiting for the parent.
    pub(super) fn tell(&mut self, event: &HoldEvent) {
        if self.is_over {
            return;
        }
        self.is_over = event.is_last();
        let line = output::json(&EventLine { event });
        self.is_broken |= self.lines.try_send(line).is_err();
    }

    /// True if the parent no longer reads: the pipe has no reader, or is full.
    pub(super) fn is_broken(&mut self) -> bool {
        self.is_broken |= self.writer.is_finished();
        if !self.is_broken {
            let stdout = io::stdout();
            let mut asked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
            let polled = poll(&mut asked, PollTimeout::ZERO);
            let said = asked[0].revents().unwrap_or(PollFlags::empty());
            self.is_broken =
                polled.is_ok() && said.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL);
        }
        self.is_broken
    }

    /// Waits a moment for the writing of the last events.
    pub(super) fn close(self) {
        drop(self.lines);
        // After this time the parent is assumed not to read.
        let _closed: Result<(), RecvTimeoutError> = self.done.recv_timeout(LAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_what_it_is_first() {
        let event = HoldEvent::Doubtful {
            valid_for_ms: 7,
            reason: "no".into(),
        };
        let line = serde_json::to_string(&EventLine { event: &event });
        assert_eq!(
            line.unwrap(),
            r#"{"schema":"leasehold.hold/1","event":"doubtful","valid_for_ms":7,"reason":"no"}"#
        );
    }
}

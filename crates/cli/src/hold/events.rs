//! What a parent is told: NDJSON on stdout. Must never make the one who holds the lock wait for the one who reads.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::output;

const SCHEMA: &str = "leasehold.hold/1";

/// How many events may wait to be read before the parent counts as gone.
const UNREAD: usize = 1024;

/// How long the last events may take to be written.
const LAST: Duration = Duration::from_secs(1);

/// What happens to the lock, in the order of a life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum HoldEvent {
    /// It is busy: told anew when the place in line or the holder changes.
    Waiting {
        lock: String,
        ahead: u32,
        holder: String,
        holder_fence: Option<u64>,
        waited_ms: u64,
    },
    /// It is held from here on.
    Acquired {
        lock: String,
        fence: u64,
        token: String,
        waited_ms: u64,
        ttl_ms: u64,
        valid_for_ms: u64,
    },
    /// A renewal failed. The lock is held until `valid_for_ms` have passed; it is tried again.
    Doubtful { valid_for_ms: u64, reason: String },
    /// A renewal went well after one that failed.
    Renewed { valid_for_ms: u64 },
    /// The answer to `check`.
    State {
        held: bool,
        doubtful: bool,
        valid_for_ms: u64,
        fence: Option<u64>,
    },
    /// It is not held any more, and was not given back: the last event.
    Lost { cause: String, code: u8 },
    /// It was given back: the last event. If not `confirmed`, the store did not answer, and the TTL ends it.
    Released { confirmed: bool },
    /// It was busy, and was not to be waited for: the last event.
    Busy { code: u8, message: String },
    /// It was busy for too long: the last event.
    Timeout { code: u8, message: String },
    /// It was asked to stop before the lock was held: the last event.
    Cancelled { code: u8, message: String },
    /// With a code, why this process ends: the last event. Without, what was wrong with a line of stdin.
    Error { code: Option<u8>, message: String },
}

impl HoldEvent {
    /// Whether nothing comes after it.
    fn is_last(&self) -> bool {
        match self {
            Self::Waiting { .. }
            | Self::Acquired { .. }
            | Self::Doubtful { .. }
            | Self::Renewed { .. }
            | Self::State { .. }
            | Self::Error { code: None, .. } => false,
            Self::Lost { .. }
            | Self::Released { .. }
            | Self::Busy { .. }
            | Self::Timeout { .. }
            | Self::Cancelled { .. }
            | Self::Error { .. } => true,
        }
    }
}

#[derive(Serialize)]
struct EventLine<'a> {
    schema: &'static str,
    #[serde(flatten)]
    event: &'a HoldEvent,
}

/// The way to the parent.
pub(super) struct Events {
    lines: Option<SyncSender<String>>,
    writer: Option<JoinHandle<()>>,
    done: Receiver<()>,
    is_broken: bool,
    is_over: bool,
}

impl Events {
    /// Opens it.
    pub(super) fn open() -> io::Result<Self> {
        let (lines, written) = sync_channel::<String>(UNREAD);
        let (finish, done) = sync_channel(1);
        let writer = thread::Builder::new()
            .name("events".into())
            .spawn(move || {
                let mut stdout = io::stdout();
                for line in written {
                    // Each line whole and at once; after a failure the channel is closed, which the other side notices.
                    if stdout
                        .write_all(line.as_bytes())
                        .and_then(|()| stdout.flush())
                        .is_err()
                    {
                        break;
                    }
                }
                // Nobody listens if this process is in a hurry.
                let _heard: Result<(), SendError<()>> = finish.send(());
            })?;
        Ok(Self {
            lines: Some(lines),
            writer: Some(writer),
            done,
            is_broken: false,
            is_over: false,
        })
    }

    /// Tells the parent, without waiting for it.
    pub(super) fn tell(&mut self, event: &HoldEvent) {
        if self.is_over {
            return;
        }
        self.is_over = event.is_last();
        let schema = SCHEMA;
        // Texts and numbers can always be written.
        let line = output::json(&EventLine { schema, event }).unwrap_or_default() + "\n";
        let sent = self.lines.as_ref().map(|lines| lines.try_send(line));
        self.is_broken |= !matches!(sent, Some(Ok(())));
    }

    /// Whether nobody reads any more: a pipe without a reader, or one that is full.
    pub(super) fn is_broken(&mut self) -> bool {
        self.is_broken |= self.writer.as_ref().is_none_or(JoinHandle::is_finished);
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

    /// Lets what was told be written, for a moment.
    pub(super) fn close(mut self) {
        self.lines = None;
        // Whoever does not read by now does not want to know.
        let _written: Result<(), RecvTimeoutError> = self.done.recv_timeout(LAST);
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
        let line = serde_json::to_string(&EventLine {
            schema: SCHEMA,
            event: &event,
        });
        assert_eq!(
            line.unwrap(),
            r#"{"schema":"leasehold.hold/1","event":"doubtful","valid_for_ms":7,"reason":"no"}"#
        );
    }
}

//! The guardian: a small process that kills the command when this process cannot. It ends with the command, and
//! keeps no file of the caller open.
//!
//! After SIGKILL a process can do nothing, and while stopped by SIGSTOP it cannot act in time; its command
//! continues meanwhile. So a second process watches, connected by a socket:
//!
//! ```text
//! leasehold run ── the command's group, sent by the command's process before it starts ──> guardian
//!               ── "done": no process is left                                          ──>
//!               <── "killed"                                                            ──
//! ```
//!
//! The deadline of the command is a number in shared memory. Each renewal moves it.
//!
//! A killed guardian is replaced by a new one, which knows the group from its start.
//!
//! # Invariants
//!
//! - **GD1** If the socket closes without "done", the guardian kills the group.
//! - **GD2** After the deadline the guardian kills the group. The deadline is never sent over the socket, which
//!   may be full: so a guardian that was stopped does not act on an old deadline.
//! - **GD3** No command starts without a guardian that knows its group, or after the deadline.
//! - **GD4** The guardian sends "killed" before it kills. So after the command is dead the message is in the
//!   socket.
//! - **GD5** After the fork the guardian makes system calls only: this process may have other threads by then.

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::libc::ETIME;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid, unlink};

use crate::sys;

/// Its name in `ps` and `top`. Different from `leasehold`, so that `killall leasehold` leaves it alive to clean
/// up.
pub(super) const NAME: &CStr = c"lease-guardian";

/// The interval of clock checks: timers do not count the time during which a host is suspended.
const SLICE: Duration = Duration::from_millis(100);

/// The time limit for the guardian's end. A stopped guardian ends when it is continued.
const GUARDIAN_EXIT_LIMIT: Duration = Duration::from_secs(1);

/// The interval and the number of checks that a killed group is gone.
const GROUP_CHECKS: (Duration, u32) = (Duration::from_millis(10), 100);

/// The length of a message: the number of a group, or [`DONE`].
const RECORD: usize = size_of::<i32>();

const DONE: i32 = i32::MIN;

/// A message to the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// The command's process group.
    Group(i32),
    /// No process is left to kill.
    Done,
}

/// The connection to the guardian. Dropping it ends the guardian, which then kills no process.
#[derive(Debug)]
pub(crate) struct Guardian {
    line: UnixStream,
    /// The process id of the guardian.
    pub(super) id: Pid,
    /// The deadline of the command, on the clock of [`sys::clock_micros`]. Shared with the guardian.
    deadline: &'static AtomicU64,
    /// The deadline for the start of the command.
    last_start: u64,
    /// The process group of the command, once it has started.
    pub(super) group: Option<Pid>,
    /// A file that the guardian removes if this process is killed.
    leftover: Option<CString>,
    killed: bool,
    /// The guardian process has ended.
    gone: bool,
}

impl Guardian {
    /// Starts the guardian. If this process dies, the guardian removes `leftover` after the command's end.
    pub(crate) fn start(leftover: Option<&Path>) -> io::Result<Self> {
        let leftover = leftover.map(|path| CString::new(path.as_os_str().as_bytes()));
        let leftover = leftover.transpose()?;
        let deadline = sys::shared_number(u64::MAX)?;
        let (line, id) = spawn_guardian(None, deadline, leftover.as_deref())?;
        Ok(Self {
            line,
            id,
            deadline,
            last_start: 0,
            group: None,
            leftover,
            killed: false,
            gone: false,
        })
    }

    /// Starts a new guardian if this one was killed, and returns true then. The new one knows the group and the
    /// deadline.
    pub(crate) fn replace_if_gone(&mut self) -> io::Result<bool> {
        self.hear();
        if !self.gone {
            return Ok(false);
        }
        // The old one is reaped with the other children of this process.
        (self.line, self.id) = spawn_guardian(self.group, self.deadline, self.leftover.as_deref())?;
        self.gone = false;
        Ok(true)
    }

    /// Ends this guardian, and starts one for another command. No process of the command before is left.
    pub(crate) fn restart(&mut self, leftover: Option<&Path>) -> io::Result<()> {
        self.end();
        let leftover = leftover.map(|path| CString::new(path.as_os_str().as_bytes()));
        self.leftover = leftover.transpose()?;
        self.deadline.store(u64::MAX, Ordering::SeqCst);
        self.group = None;
        (self.line, self.id) = spawn_guardian(None, self.deadline, self.leftover.as_deref())?;
        (self.killed, self.gone) = (false, false);
        Ok(())
    }

    /// Sets the deadline of the command: `left` from now. The guardian kills the command then, unless a later
    /// call moves the deadline.
    pub(crate) fn set_deadline(&mut self, left: Option<Duration>) {
        let deadline = left.map_or(u64::MAX, |left| {
            sys::clock_micros().saturating_add(micros(left))
        });
        self.deadline.store(deadline, Ordering::SeqCst);
    }

    /// Sets the time within which the command may start.
    pub(crate) fn set_start_deadline(&mut self, left: Duration) {
        self.last_start = sys::clock_micros().saturating_add(micros(left));
    }

    /// The hook that a process runs before it becomes the command: it sends its group to the guardian (GD3).
    pub(crate) fn announcement_hook(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let deadline = self.deadline.load(Ordering::SeqCst).min(self.last_start);
        let line = self.line.as_raw_fd();
        move || {
            if sys::clock_micros() >= deadline {
                return Err(io::Error::from_raw_os_error(ETIME));
            }
            sys::send(line, &Message::Group(getpid().as_raw()).encode())
        }
    }

    /// True if `error` means that the deadline passed before the command started.
    pub(crate) fn was_too_late(error: &io::Error) -> bool {
        error.raw_os_error() == Some(ETIME)
    }

    /// True if the guardian has killed the command.
    pub(crate) fn has_killed(&mut self) -> bool {
        self.hear();
        self.killed
    }

    /// Reads the messages of the guardian.
    fn hear(&mut self) {
        match (&self.line).read(&mut [0]) {
            Ok(0) => self.gone = true,
            Ok(_) => self.killed = true,
            // The guardian was killed before it had read all messages.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.gone = true,
            Err(_) => {}
        }
    }

    /// Ends the guardian's watch over an empty group. The system may reuse the group's number from now on, while
    /// the release may take a while.
    pub(crate) fn dismiss(&mut self) {
        // A dismissed guardian no longer removes this file.
        if let Some(leftover) = &self.leftover {
            let _removed: nix::Result<()> = unlink(leftover.as_c_str());
        }
        // A full socket gets the message again on drop.
        let _told: io::Result<()> = self.tell(Message::Done);
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        sys::send(self.line.as_raw_fd(), &message.encode())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.end();
    }
}

impl Guardian {
    fn end(&mut self) {
        let told = self.tell(Message::Done).is_ok();
        let mut patience = GUARDIAN_EXIT_LIMIT;
        // The guardian's end closes the socket; a message may precede it.
        while told && !patience.is_zero() {
            if sys::readable_within(&self.line, SLICE)
                && !matches!((&self.line).read(&mut [0; 8]), Ok(1..))
            {
                sys::reap(self.id);
                return;
            }
            patience = patience.saturating_sub(SLICE);
        }
    }
}

impl Message {
    fn encode(self) -> [u8; RECORD] {
        match self {
            Self::Group(group) => group.to_ne_bytes(),
            Self::Done => DONE.to_ne_bytes(),
        }
    }

    fn decode(record: [u8; RECORD]) -> Option<Self> {
        match i32::from_ne_bytes(record) {
            DONE => Some(Self::Done),
            // Never 0 or 1, which would mean this process's group or all processes.
            group @ 2.. => Some(Self::Group(group)),
            _ => None,
        }
    }
}

/// Starts a guardian of `group`. Returns its socket and process id.
fn spawn_guardian(
    group: Option<Pid>,
    deadline: &'static AtomicU64,
    leftover: Option<&CStr>,
) -> io::Result<(UnixStream, Pid)> {
    let (ours, its) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let id = sys::split_off(its, NAME, |line| {
        if watch(line, group, deadline)
            && let Some(leftover) = leftover
        {
            // The file may already be gone.
            let _removed: nix::Result<()> = unlink(leftover);
        }
    })?;
    Ok((ours, id))
}

/// The main loop of the guardian (GD5). Returns true if the wrapper died, and the guardian killed the group.
fn watch(mut line: UnixStream, mut group: Option<Pid>, deadline: &AtomicU64) -> bool {
    let mut killed = false;
    loop {
        let deadline = deadline.load(Ordering::SeqCst);
        let left = Duration::from_micros(deadline.saturating_sub(sys::clock_micros()));
        let overdue = left.is_zero() && !killed;
        let rest = if killed { SLICE } else { SLICE.min(left) };
        if sys::readable_within(&line, rest) {
            let mut record = [0; RECORD];
            if line.read_exact(&mut record).is_err() {
                break;
            }
            match Message::decode(record) {
                Some(Message::Group(told)) => group = Some(Pid::from_raw(told)),
                Some(Message::Done) => return false,
                None => {}
            }
        } else if let (true, Some(group)) = (overdue, group) {
            // Before the kill (GD4).
            let _told: io::Result<()> = sys::send(line.as_raw_fd(), &[1]);
            kill(group);
            killed = true;
        } else if overdue {
            // The command has not started. After its deadline it does not start, or is killed once its group is
            // known.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let (pause, times) = GROUP_CHECKS;
    for _ in 0..times {
        if group.is_none_or(|group| !kill(group)) {
            break;
        }
        std::thread::sleep(pause);
    }
    true
}

/// Kills the process group. Returns true if it had members.
fn kill(group: Pid) -> bool {
    killpg(group, Signal::SIGKILL) != Err(nix::errno::Errno::ESRCH)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

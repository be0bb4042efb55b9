//! The guardian: a small process that kills the command when this one cannot. Must never outlive the command, never keep
//! anything of the caller's open, and never kill what was not told to it.
//!
//! A process that gets SIGKILL can do nothing any more, and one that gets SIGSTOP nothing in time; its command runs on
//! meanwhile. So another one watches, over a line between the two:
//!
//! ```text
//! leasehold run ── the command's group (told by the command itself, before it is one)  ──> guardian
//!               ── done: nobody is left                                                 ──>
//!               <── I have killed it                                                    ──
//! ```
//!
//! Both see one number in shared memory: until when the command may run. It moves with each renewal.
//!
//! A guardian that is killed is replaced by a new one, which knows the group from its first moment.
//!
//! # Invariants
//!
//! - **G1** The line ends without "done": the group is killed.
//! - **G2** The deadline has passed: the group is killed. The deadline is never in the line, which may be full: so a guardian
//!   that was stopped itself does not judge by an old one.
//! - **G3** No command begins without a guardian that knows its group, or after the deadline.
//! - **G4** "I have killed it" is sent before the kill: who finds the command dead by it finds the message.
//! - **G5** From its start on a guardian makes system calls only: this process may have other threads by then.

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

/// What `ps` and `top` call it. Not `leasehold`, so that `killall leasehold` leaves someone to clean up.
const NAME: &CStr = c"lease-guardian";

/// How often to look at the clock: timers do not count the time for which a host is suspended.
const SLICE: Duration = Duration::from_millis(100);

/// How long to wait for it when it is done. One that was stopped ends when it is continued.
const FAREWELL: Duration = Duration::from_secs(1);

/// How often, and how many times, it is checked that a killed group is gone.
const BURIAL: (Duration, u32) = (Duration::from_millis(10), 100);

const RECORD: usize = 16;

/// What goes to the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// The command's process group.
    Group(i32),
    /// Nobody is left to be killed.
    Done,
}

/// Our end of the line. Dropping it ends the guardian, which then kills nobody.
#[derive(Debug)]
pub(crate) struct Guardian {
    line: UnixStream,
    id: Pid,
    /// Until when the command may run, on the clock of [`sys::clock_micros`]. The guardian sees it as well.
    deadline: &'static AtomicU64,
    /// When the command may no longer begin.
    last_start: u64,
    /// The command's group, once there is one.
    group: Option<Pid>,
    /// A file that is to go when this process is killed.
    leftover: Option<CString>,
    killed: bool,
    /// It was found dead.
    gone: bool,
}

impl Guardian {
    /// Starts it. If this process dies, it removes `leftover` after the command.
    pub(crate) fn start(leftover: Option<&Path>) -> io::Result<Self> {
        let leftover = leftover.map(|path| CString::new(path.as_os_str().as_bytes()));
        let leftover = leftover.transpose()?;
        let deadline = sys::shared_number(u64::MAX)?;
        let (line, id) = post(None, deadline, leftover.as_deref())?;
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

    /// Starts another one if this one was killed; says whether it was. The new one knows the group and the deadline.
    pub(crate) fn replace_if_gone(&mut self) -> io::Result<bool> {
        self.hear();
        if !self.gone {
            return Ok(false);
        }
        // The old one is buried with whoever else falls to this process.
        (self.line, self.id) = post(self.group, self.deadline, self.leftover.as_deref())?;
        self.gone = false;
        Ok(true)
    }

    /// Its process.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// The command has begun, and is this group.
    pub(crate) fn watches(&mut self, group: Pid) {
        self.group = Some(group);
    }

    /// The command may run for this long from now; it is killed then, unless this is called again before.
    pub(crate) fn allow(&mut self, left: Option<Duration>) {
        let deadline = left.map_or(u64::MAX, |left| {
            sys::clock_micros().saturating_add(micros(left))
        });
        self.deadline.store(deadline, Ordering::SeqCst);
    }

    /// The command may begin within this time from now.
    pub(crate) fn admit(&mut self, left: Duration) {
        self.last_start = sys::clock_micros().saturating_add(micros(left));
    }

    /// What a process does before it becomes the command: it tells its group (G3).
    pub(crate) fn introduction(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let deadline = self.deadline.load(Ordering::SeqCst).min(self.last_start);
        let line = self.line.as_raw_fd();
        move || {
            if sys::clock_micros() >= deadline {
                return Err(io::Error::from_raw_os_error(ETIME));
            }
            sys::send(line, &Message::Group(getpid().as_raw()).encode())
        }
    }

    /// Whether `error` says that the time was over before the command began.
    pub(crate) fn was_too_late(error: &io::Error) -> bool {
        error.raw_os_error() == Some(ETIME)
    }

    /// Whether it has killed the command.
    pub(crate) fn has_killed(&mut self) -> bool {
        self.hear();
        self.killed
    }

    /// Takes what has come in over the line.
    fn hear(&mut self) {
        match (&self.line).read(&mut [0]) {
            Ok(0) => self.gone = true,
            Ok(_) => self.killed = true,
            // It was killed before it had read all.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.gone = true,
            Err(_) => {}
        }
    }

    /// Ends its watch over a group in which nobody is left: the number is for others to use from now on, while the store may
    /// take its time to confirm the release.
    pub(crate) fn dismiss(&mut self) {
        // It would not remove this any more.
        if let Some(leftover) = &self.leftover {
            let _removed: nix::Result<()> = unlink(leftover.as_c_str());
        }
        // A line that is full is told again at the end.
        let _told: io::Result<()> = self.tell(Message::Done);
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        sys::send(self.line.as_raw_fd(), &message.encode())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let told = self.tell(Message::Done).is_ok();
        let mut patience = FAREWELL;
        // Its end is the end of the line; before that there may be a message left.
        while told && !patience.is_zero() {
            if sys::readable_within(&self.line, SLICE)
                && !matches!((&self.line).read(&mut [0; 8]), Ok(1..))
            {
                sys::bury(self.id);
                return;
            }
            patience = patience.saturating_sub(SLICE);
        }
    }
}

impl Message {
    fn encode(self) -> [u8; RECORD] {
        let (kind, value) = match self {
            Self::Group(group) => (1, u64::from(group.unsigned_abs())),
            Self::Done => (2, 0),
        };
        let mut record = [0; RECORD];
        record[0] = kind;
        record[8..].copy_from_slice(&u64::to_le_bytes(value));
        record
    }

    fn decode(record: [u8; RECORD]) -> Option<Self> {
        let mut value = [0; 8];
        value.copy_from_slice(&record[8..]);
        let value = u64::from_le_bytes(value);
        match record[0] {
            // Never 0 or 1, which would mean ourselves or everybody.
            1 => i32::try_from(value)
                .ok()
                .filter(|group| *group > 1)
                .map(Self::Group),
            2 => Some(Self::Done),
            _ => None,
        }
    }
}

/// How the guardian's watch ended.
#[derive(Debug, PartialEq, Eq)]
enum WatchEnd {
    /// Its wrapper said that nobody is left.
    Done,
    /// Its wrapper died, and the group with it.
    Killed,
}

/// Starts a guardian of `group`, and says how to reach it.
fn post(
    group: Option<Pid>,
    deadline: &'static AtomicU64,
    leftover: Option<&CStr>,
) -> io::Result<(UnixStream, Pid)> {
    let (ours, its) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let id = sys::split_off(its, NAME, |line| {
        if watch(line, group, deadline) == WatchEnd::Killed
            && let Some(leftover) = leftover
        {
            // To be gone already is as good.
            let _removed: nix::Result<()> = unlink(leftover);
        }
    })?;
    Ok((ours, id))
}

/// The guardian's whole life (G5).
fn watch(mut line: UnixStream, mut group: Option<Pid>, deadline: &AtomicU64) -> WatchEnd {
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
                Some(Message::Done) => return WatchEnd::Done,
                None => {}
            }
        } else if let (true, Some(group)) = (overdue, group) {
            // Before the kill (G4).
            let _told: io::Result<()> = sys::send(line.as_raw_fd(), &[1]);
            kill(group);
            killed = true;
        } else if overdue {
            // There is no command yet. It will not begin after its deadline, or is killed when it has told its group.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let (pause, times) = BURIAL;
    for _ in 0..times {
        if group.is_none_or(|group| !kill(group)) {
            break;
        }
        std::thread::sleep(pause);
    }
    WatchEnd::Killed
}

/// Kills all of `group`. Says whether there was anybody.
fn kill(group: Pid) -> bool {
    killpg(group, Signal::SIGKILL) != Err(nix::errno::Errno::ESRCH)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

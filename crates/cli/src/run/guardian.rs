//! The guardian: a small process that kills the command when this one cannot. Must never outlive the command, never keep
//! anything of the caller's open, and never kill what was not told to it.
//!
//! A process that gets SIGKILL can do nothing any more, and one that gets SIGSTOP nothing in time; its command runs on
//! meanwhile. So another one watches, over a line between the two:
//!
//! ```text
//! leasehold run ── the command's group (told by the command itself, before it is one)  ──> guardian
//!               ── until when the command may run, after each renewal                  ──>
//!               ── done: nobody is left                                                 ──>
//!               <── I have killed it                                                    ──
//! ```
//!
//! # Invariants
//!
//! - **G1** The line ends without "done": the group is killed.
//! - **G2** The last deadline has passed and no newer one is in the line: the group is killed. What the line holds is read
//!   first, so that a guardian that was stopped itself does not judge by old news.
//! - **G3** No command begins without a guardian that knows its group, or after the deadline.
//! - **G4** "I have killed it" is sent before the kill: who finds the command dead by it finds the message.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::libc::ETIME;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid};

use crate::{handed, sys};

/// What `ps` and `top` call it. Not `leasehold`, so that `killall leasehold` leaves someone to clean up.
const NAME: &std::ffi::CStr = c"lease-guardian";

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
    /// Until when it may run, on the clock of [`sys::clock_micros`].
    Deadline(u64),
    /// Nobody is left to be killed.
    Done,
}

/// Our end of the line. Dropping it ends the guardian, which then kills nobody.
#[derive(Debug)]
pub(crate) struct Guardian {
    line: UnixStream,
    id: Pid,
    deadline: u64,
    /// When the command may no longer begin.
    last_start: u64,
    killed: bool,
    /// It was found dead.
    gone: bool,
}

impl Guardian {
    /// Starts it. If this process dies, it removes `leftover` after the command. To be called while this process has one thread.
    pub(crate) fn start(leftover: Option<&Path>) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let ours_in_its = ours.as_raw_fd();
        let id = sys::split_off(its, NAME, |line| {
            debug_assert!(line.as_raw_fd() != ours_in_its, "our end is closed there");
            if watch(line) == End::Killed
                && let Some(leftover) = leftover
            {
                handed::remove(leftover);
            }
        })?;
        ours.set_nonblocking(true)?;
        Ok(Self {
            line: ours,
            id,
            deadline: u64::MAX,
            last_start: 0,
            killed: false,
            gone: false,
        })
    }

    /// The command may run for this long from now; without a newer word it is killed then.
    pub(crate) fn allow(&mut self, left: Option<Duration>) {
        self.deadline = left.map_or(u64::MAX, |left| {
            sys::clock_micros().saturating_add(micros(left))
        });
        // One that is stopped and has a full line is no worse off with old deadlines: they are sooner.
        let told = self.tell(Message::Deadline(self.deadline));
        self.gone |= told.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    }

    /// The command may begin within this time from now.
    pub(crate) fn admit(&mut self, left: Duration) {
        self.last_start = sys::clock_micros().saturating_add(micros(left));
    }

    /// What a process does before it becomes the command: it tells its group (G3).
    pub(crate) fn introduction(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let (line, deadline) = (self.line.as_raw_fd(), self.deadline.min(self.last_start));
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
        self.killed |= matches!((&self.line).read(&mut [0]), Ok(1));
        self.killed
    }

    /// Ends its watch over a group in which nobody is left: the number is for others to use from now on, while the store may
    /// take its time to confirm the release.
    pub(crate) fn dismiss(&mut self) {
        // A line that is full is told again at the end.
        let _told: io::Result<()> = self.tell(Message::Done);
    }

    /// Whether it was found dead: someone killed it.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
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
            Self::Deadline(at) => (2, at),
            Self::Done => (3, 0),
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
            2 => Some(Self::Deadline(value)),
            3 => Some(Self::Done),
            _ => None,
        }
    }
}

/// How the guardian's watch ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Its wrapper said that nobody is left.
    Done,
    /// Its wrapper died, and the group with it.
    Killed,
}

/// The guardian's whole life.
fn watch(mut line: UnixStream) -> End {
    let (mut group, mut deadline, mut killed) = (None, u64::MAX, false);
    loop {
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
                Some(Message::Deadline(at)) => deadline = at,
                Some(Message::Done) => return End::Done,
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
    End::Killed
}

/// Kills all of `group`. Says whether there was anybody.
fn kill(group: Pid) -> bool {
    killpg(group, Signal::SIGKILL) != Err(nix::errno::Errno::ESRCH)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for message in [
            Message::Group(4_121),
            Message::Deadline(0),
            Message::Deadline(u64::MAX),
            Message::Done,
        ] {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
    }

    #[test]
    fn no_command_begins_after_its_lease_though_it_may_outlive_it() {
        let (line, _its) = UnixStream::pair().unwrap();
        // Nobody is at the other end to be waited for.
        let mut guardian = std::mem::ManuallyDrop::new(Guardian {
            line,
            id: getpid(),
            deadline: 0,
            last_start: 0,
            killed: false,
            gone: false,
        });
        guardian.allow(None);
        guardian.admit(Duration::from_secs(60));
        guardian.introduction()().unwrap();
        guardian.admit(Duration::ZERO);
        assert!(Guardian::was_too_late(
            &guardian.introduction()().unwrap_err()
        ));
    }

    #[test]
    fn a_group_that_would_be_everybody_is_none() {
        for group in [0, 1, -1] {
            assert_eq!(Message::decode(Message::Group(group).encode()), None);
        }
    }
}

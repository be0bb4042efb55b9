//! The shell that called `leasehold dev`, and whether it still runs.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getpid, getppid};

/// A process, identified by its id and start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallingShell {
    pid: i32,
    /// The start time in ticks since boot; 0 where the system does not tell.
    started: u64,
}

impl CallingShell {
    /// The shell that runs `$(leasehold dev)`. A shell may fork for that, and the fork ends with this process. A
    /// fork is recognized because it has executed no program.
    ///
    /// None if the shell is gone or in another session: another parent, like `init`, could outlive the use of
    /// the server.
    pub(super) fn find() -> Option<Self> {
        let mut pid = getppid().as_raw();
        while let Some(seen) = ProcessStat::of(pid)
            && seen.is_fork
            && seen.parent > 0
        {
            pid = seen.parent;
        }
        let started = match (ProcessStat::of(pid), ProcessStat::of(getpid().as_raw())) {
            // A shell and its children share a session; `init` and orphans do not.
            (Some(shell), Some(ours)) => (shell.session == ours.session).then_some(shell.started),
            (None, Some(_)) => None,
            // No /proc.
            (_, None) => (pid > 1).then_some(0),
        }?;
        Some(Self { pid, started })
    }

    /// Parses the output of [`fmt::Display`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    /// True if the process has ended.
    pub(super) fn is_gone(self) -> bool {
        match ProcessStat::of(self.pid) {
            Some(seen) => seen.has_ended || seen.started != self.started,
            // Without /proc only the process id is known.
            None => self.started != 0 || kill(Pid::from_raw(self.pid), None) == Err(Errno::ESRCH),
        }
    }
}

impl fmt::Display for CallingShell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

/// The state of a process, from `/proc/PID/stat`.
struct ProcessStat {
    has_ended: bool,
    parent: i32,
    session: i32,
    is_fork: bool,
    started: u64,
}

/// The flag for a forked process that has executed no program: `PF_FORKNOEXEC` in Linux' `sched.h`.
const FORK_NO_EXEC: u64 = 0x40;

impl ProcessStat {
    fn of(pid: i32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the last bracket may contain any character. The fields after it: state, parent, and so
        // on, see proc(5).
        let fields: Vec<&str> = line.rsplit_once(") ")?.1.split(' ').collect();
        Some(Self {
            has_ended: fields
                .first()
                .is_none_or(|state| ["Z", "X"].contains(state)),
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            is_fork: fields.get(6)?.parse::<u64>().ok()? & FORK_NO_EXEC != 0,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_number_and_start() {
        // The test process itself.
        let pid = getpid().as_raw();
        let started = ProcessStat::of(pid).map_or(0, |seen| seen.started);
        let shell = CallingShell { pid, started };
        assert_eq!(CallingShell::parse(&format!("{shell}\n")), Some(shell));
        assert!(!shell.is_gone());
        #[cfg(target_os = "linux")]
        assert!(
            CallingShell {
                started: shell.started + 1,
                ..shell
            }
            .is_gone()
        );
        for text in ["", "1", "x 1"] {
            assert_eq!(CallingShell::parse(text), None);
        }
    }
}

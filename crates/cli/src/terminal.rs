//! The controlling terminal, and which process group may use it.
//!
//! The command has its own process group, so that a signal reaches all of it. A terminal serves one group at a
//! time, its *foreground*. If it serves the group of this process, it is passed to the command, and then Ctrl-C
//! and Ctrl-Z reach the command only.
//!
//! In a pipeline (`leasehold run ... | less`) other processes of the group may need the terminal. Then the
//! command gets it when it first asks, which the system shows by stopping it (SIGTTIN, SIGTTOU).

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};

use crate::sys;

/// Lets this process write to a terminal that serves another group, even with `stty tostop`: otherwise the
/// system would stop this process and its renewals. Must be called before any thread starts.
pub(crate) fn write_from_background() {
    // Fails only for signals that do not exist.
    let _blocked: nix::Result<()> = sys::only(Signal::SIGTTOU).thread_block();
}

/// The controlling terminal of this process.
#[derive(Debug)]
pub(crate) struct Terminal {
    fd: OwnedFd,
    /// The modes of the terminal at the start.
    modes: Option<Termios>,
}

impl Terminal {
    /// The controlling terminal, if this process has one.
    pub(crate) fn controlling() -> Option<Self> {
        let stdin = io::stdin().as_fd().try_clone_to_owned().ok();
        let tty = || {
            File::options()
                .read(true)
                .write(true)
                .open("/dev/tty")
                .ok()
                .map(OwnedFd::from)
        };
        // Only the controlling terminal answers this request.
        let controls = |fd: &OwnedFd| tcgetpgrp(fd).is_ok();
        let fd = stdin.filter(controls).or_else(|| tty().filter(controls))?;
        Some(Self {
            modes: tcgetattr(&fd).ok(),
            fd,
        })
    }

    /// True if the terminal serves the process group of this process.
    pub(crate) fn is_foreground(&self) -> bool {
        self.serves(getpgrp())
    }

    /// True if the terminal serves `group`.
    pub(crate) fn serves(&self, group: Pid) -> bool {
        tcgetpgrp(&self.fd) == Ok(group)
    }

    /// True if the command gets the terminal at its start: the terminal serves this group, and no other process
    /// of a pipeline needs it.
    pub(crate) fn is_for_the_command_alone(&self) -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal() && self.is_foreground()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Passes the terminal to the command's group.
    pub(crate) fn give_to(&self, group: Pid) {
        // Fails when the group or the terminal is gone, which the next check of the child shows.
        let _given: nix::Result<()> = sys::give_terminal(&self.fd, group);
    }

    /// Takes the terminal back if it serves the command's group. Returns true in that case.
    pub(crate) fn take_from(&self, group: Pid) -> bool {
        let was_there = self.serves(group);
        if was_there {
            self.give_to(getpgrp());
        }
        was_there
    }

    /// Restores the modes that a killed command may have changed: echo off, raw mode.
    pub(crate) fn restore(&self) {
        if let (Some(modes), true) = (&self.modes, self.is_foreground()) {
            // A closed terminal needs no restoring.
            let _restored: nix::Result<()> = tcsetattr(&self.fd, SetArg::TCSADRAIN, modes);
        }
    }
}

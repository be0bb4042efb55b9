//! The controlling terminal and who may use it. Must never take it from a process group that is not ours or the command's.
//!
//! The command runs in a process group of its own, so that a signal can be sent to all of it. A terminal serves one group at a
//! time, its *foreground*; so if it serves ours, it is handed to the command, and Ctrl-C and Ctrl-Z reach the command alone.
//!
//! In a pipeline (`leasehold run ... | less`) the others of our group may need the terminal. There the command gets it when
//! it first asks, which the system shows by stopping it (SIGTTIN, SIGTTOU).

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};

use crate::sys;

/// Lets this process write to a terminal that serves another group, whatever `stty tostop` says: the system would stop it,
/// and with it the renewals. To be called before any thread is started.
pub(crate) fn write_from_background() {
    // Fails only for signals that do not exist.
    let _blocked: nix::Result<()> = sys::only(Signal::SIGTTOU).thread_block();
}

/// The controlling terminal of this process.
#[derive(Debug)]
pub(crate) struct Terminal {
    fd: OwnedFd,
    /// How it was set up when we started.
    modes: Option<Termios>,
}

impl Terminal {
    /// The terminal, if this process has one.
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
        // The question for the foreground is answered only about the controlling terminal.
        let controls = |fd: &OwnedFd| tcgetpgrp(fd).is_ok();
        let fd = stdin.filter(controls).or_else(|| tty().filter(controls))?;
        Some(Self {
            modes: tcgetattr(&fd).ok(),
            fd,
        })
    }

    /// Whether it serves our process group.
    pub(crate) fn is_ours(&self) -> bool {
        self.serves(getpgrp())
    }

    /// Whether it serves `group`.
    pub(crate) fn serves(&self, group: Pid) -> bool {
        tcgetpgrp(&self.fd) == Ok(group)
    }

    /// Whether to hand it to the command from the start: it serves us, and nobody in a pipeline with us may want it.
    pub(crate) fn is_for_the_command_alone(&self) -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal() && self.is_ours()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Hands it to the command's group.
    pub(crate) fn give_to(&self, group: Pid) {
        // Fails when the group or the terminal is gone, which the next look at the child shows.
        let _given: nix::Result<()> = sys::give_terminal(&self.fd, group);
    }

    /// Takes it back from the command's group, and leaves it alone if it serves any other. Says whether it was there.
    pub(crate) fn take_from(&self, group: Pid) -> bool {
        let was_there = self.serves(group);
        if was_there {
            self.give_to(getpgrp());
        }
        was_there
    }

    /// Undoes what a killed command did to the terminal: echo off, raw mode.
    pub(crate) fn restore(&self) {
        if let (Some(modes), true) = (&self.modes, self.is_ours()) {
            // A terminal that hung up needs no repair.
            let _restored: nix::Result<()> = tcsetattr(&self.fd, SetArg::TCSADRAIN, modes);
        }
    }
}

//! The signals of this process, and its controlling terminal: which process group may use it.
//!
//! The command has its own process group, so that a signal reaches all of it. A terminal serves one group at a
//! time, its *foreground*. If it serves the group of this process, it is passed to the command, and then Ctrl-C
//! and Ctrl-Z reach the command only.
//!
//! In a pipeline (`leasehold run ... | less`) other processes of the group may need the terminal. Then the
//! command gets it when it first asks, which the system shows by stopping it (SIGTTIN, SIGTTOU).

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;

use futures_util::FutureExt;
use nix::sys::signal::SigSet;
use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Exit;
use crate::sys;

/// Lets this process write to a terminal that serves another group, even with `stty tostop`: otherwise the
/// system would stop this process and its renewals. Must be called before any thread starts.
pub(crate) fn write_from_background() {
    // Fails only for signals that do not exist.
    let _blocked: nix::Result<()> = SigSet::from(Signal::SIGTTOU).thread_block();
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

/// The signals that end a wait. Other caught signals concern a running command only.
const ENDING: [Signal; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// The signals that are forwarded to a running command.
const FORWARDED: [Signal; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// The signals caught by this process.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// A signal has asked this process to end, or its command.
    is_asked_to_end: bool,
}

impl Signals {
    /// Starts to catch signals.
    pub(crate) fn catch() -> Result<Self, Exit> {
        let mut signals = Self::default();
        for signal in FORWARDED {
            signals.add(signal)?;
        }
        Ok(signals)
    }

    /// Catches Ctrl-Z too, for a running command: this process must not stop before the command has stopped.
    pub(crate) fn catch_stop(&mut self) -> io::Result<()> {
        self.add(SIGTSTP)
    }

    fn add(&mut self, signal: Signal) -> io::Result<()> {
        let is_caught = self.streams.iter().any(|(caught, _)| *caught == signal);
        if !is_caught && !sys::is_ignored(signal) {
            let stream = unix::signal(SignalKind::from_raw(signal as i32))?;
            self.streams.push((signal, stream));
        }
        Ok(())
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = poll_fn(|context| {
            let caught = self.streams.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            caught.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.is_asked_to_end |= matches!(signal, SIGTERM | SIGINT | SIGQUIT);
        signal
    }

    /// True after TERM, INT or QUIT. HUP may have been meant for the command, which reads its settings again.
    pub(crate) fn is_asked_to_end(&self) -> bool {
        self.is_asked_to_end
    }

    /// True if `signal` asks this process to end.
    #[cfg(feature = "cache")]
    pub(crate) fn is_ending(signal: Signal) -> bool {
        ENDING.contains(&signal)
    }

    /// The next signal that ends a wait. Other signals have no receiver before the command starts. Ctrl-Z stops this process, which
    /// catches it once a command has run.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal == SIGTSTP {
                sys::stop_own_group();
            }
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }

    /// An ending signal that has already arrived.
    pub(crate) async fn arrived(&mut self) -> Option<Signal> {
        // Lets the runtime process the signals that the handler recorded.
        tokio::task::yield_now().await;
        self.next_ending().now_or_never()
    }
}

//! The command as a process. Must never signal a process group that may belong to someone else by now, and never
//! outlive this process (on Linux).

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;

use nix::libc::ECHILD;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getpid};
use tokio::signal::unix::{self, SignalKind};

use super::command::ResolvedCommand;
use super::environment::Environment;
use super::guardian::Guardian;
use crate::exit::SOFTWARE;
use crate::sys;
use crate::terminal::Terminal;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildChange {
    /// It was stopped by this signal, and can go on.
    Stopped(i32),
    /// It is gone.
    Ended(ExitStatus),
}

/// A running command, in a process group of its own. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Child {
    id: Pid,
    news: unix::Signal,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Starts `program`, with `terminal` in its hands if it is ours to give. To be called from the main thread.
    pub(crate) fn start(
        program: &ResolvedCommand,
        environment: &Environment,
        terminal: Option<&Terminal>,
        guardian: &Guardian,
    ) -> io::Result<Self> {
        // Listen first: it may end at once.
        let news = unix::signal(SignalKind::child())?;
        let mut command = program.command();
        environment.apply(&mut command);
        command.process_group(0);
        let handed = terminal.filter(|terminal| terminal.is_for_the_command_alone());
        sys::prepare(
            &mut command,
            handed.map(Terminal::as_fd),
            guardian.introduction(),
        );
        let child = command.spawn().inspect_err(|_| {
            if let Some(terminal) = handed {
                // A child that failed to become the command took it along.
                terminal.give_to(getpgrp());
            }
        })?;
        let id = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Self {
            id,
            news,
            ended: None,
        })
    }

    /// Its process group, which has the number of the command itself.
    pub(crate) fn group(&self) -> Pid {
        self.id
    }

    /// Waits until something may have become of it.
    pub(crate) async fn news(&mut self) {
        if self.news.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// What became of it since the last call. Buries all others that have fallen to this process meanwhile.
    pub(crate) fn change(&mut self) -> Option<ChildChange> {
        let status = loop {
            match sys::next_change() {
                Ok(Some((id, status))) if id == self.id => break status,
                Ok(Some(_)) => {}
                // Someone else waited for our child, which only a fault of ours can be: it is gone, and its status with it.
                Err(error) if error.raw_os_error() == Some(ECHILD) && self.ended.is_none() => {
                    break ExitStatus::from_raw(i32::from(SOFTWARE) << 8);
                }
                Ok(None) | Err(_) => return None,
            }
        };
        if let Some(signal) = status.stopped_signal() {
            return Some(ChildChange::Stopped(signal));
        }
        self.ended = Some(status);
        Some(ChildChange::Ended(status))
    }

    /// Sends a signal to all of its group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Fails when nobody is left in it. The number cannot be anyone else's while a member lives, and of an empty group
        // it takes a whole round of process numbers to come back.
        let _sent: nix::Result<()> = killpg(self.id, signal);
    }

    /// The processes that left the command's group and live, as far as they have fallen to this process: their parents are gone.
    /// Only on Linux, where this process asked for them.
    pub(crate) fn strays(&mut self, guardian: &Guardian) -> Vec<Pid> {
        // Buries the dead.
        let _known: Option<ChildChange> = self.change();
        let ours = getpid();
        let children = fs::read_to_string(format!("/proc/{ours}/task/{ours}/children"));
        let children = children.unwrap_or_default();
        let pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        pids.map(Pid::from_raw)
            .filter(|pid| *pid != guardian.id())
            .filter(|pid| getpgid(Some(*pid)).is_ok_and(|group| group != self.id))
            .collect()
    }

    /// How the command has ended, if it is gone. Others of its group may be left.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.ended
    }

    /// Whether anybody of its group is left.
    pub(crate) fn group_lives(&self) -> bool {
        killpg(self.id, None) != Err(nix::errno::Errno::ESRCH)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Not on any usual way: only a panic comes here with a command still running.
        if self.ended.is_none() {
            self.signal(Signal::SIGKILL);
        }
    }
}

//! The command as a child process. On Linux it dies with this process. A signal goes to its process group only
//! while the group is certain to be the command's.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;

use nix::libc::ECHILD;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, getpid};
use tokio::signal::unix::{self, SignalKind};

use super::command::ResolvedCommand;
use super::guardian::{self, Guardian};
use crate::exit::SOFTWARE;
use crate::inherited_store::{self, Variables};
use crate::messages::say;
use crate::sys;
use crate::terminal::Terminal;

/// A running command in its own process group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Child {
    id: Pid,
    news: unix::Signal,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Starts `program`. It gets `terminal` if this process may pass it on. Must be called from the main thread.
    pub(crate) fn start(
        program: &ResolvedCommand,
        variables: &Variables,
        terminal: Option<&Terminal>,
        guardian: &Guardian,
    ) -> io::Result<Self> {
        // Listen before the start: the command may end at once.
        let news = unix::signal(SignalKind::child())?;
        let mut command = program.command();
        inherited_store::apply(variables, &mut command);
        command.process_group(0);
        let handed = terminal.filter(|terminal| terminal.is_for_the_command_alone());
        sys::prepare(
            &mut command,
            handed.map(Terminal::as_fd),
            guardian.announcement_hook(),
        );
        let child = command.spawn().inspect_err(|_| {
            if let Some(terminal) = handed {
                // The child that failed to start the command had already taken the terminal.
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

    /// The process group of the command. Its number is the command's process id.
    pub(crate) fn group(&self) -> Pid {
        self.id
    }

    /// Waits until the state of the command may have changed.
    pub(crate) async fn changed(&mut self) {
        if self.news.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Notices a change of state since the last call. Returns the signal that has stopped the command, if one has. Also
    /// reaps all other children of this process.
    pub(crate) fn change(&mut self) -> Option<i32> {
        let status = loop {
            match sys::next_change() {
                Ok(Some((id, status))) if id == self.id => break status,
                Ok(Some(_)) => {}
                // Another part of this program reaped the child, which is a bug: the child has ended and its
                // status is lost.
                Err(error) if error.raw_os_error() == Some(ECHILD) && self.ended.is_none() => {
                    break ExitStatus::from_raw(i32::from(SOFTWARE) << 8);
                }
                Ok(None) | Err(_) => return None,
            }
        };
        let stopped = status.stopped_signal();
        if stopped.is_none() {
            self.ended = Some(status);
        }
        stopped
    }

    /// Sends a signal to the process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Fails when the group is empty. The number stays the group's while a member lives, and the system
        // reuses it only after a whole round of process ids.
        let _sent: nix::Result<()> = killpg(self.id, signal);
    }

    /// Names the live processes that left the command's group: no signal to the group reaches them, and they do
    /// not keep the lock. Only on Linux, where this process is their subreaper.
    pub(crate) fn warn_of_strays(&mut self, guardian: &Guardian) {
        // Reaps ended children.
        let _known: Option<i32> = self.change();
        let (mut strays, mut parents) = (Vec::new(), vec![getpid()]);
        while let Some(parent) = parents.pop() {
            for pid in children(parent) {
                match SeenProcess::of(pid) {
                    // A process of the group may still have children outside of it.
                    Some(seen) if seen.group == self.id => parents.push(pid),
                    // A guardian, also that of a killed inner run, ends by itself.
                    Some(seen) if pid != guardian.id && !seen.is_guardian() => {
                        strays.push(format!("pid {pid} ({})", seen.name));
                    }
                    _ => {}
                }
            }
        }
        if !strays.is_empty() {
            say(&format!(
                "the command has left processes outside of its group, which still run and do not keep the lock: {}",
                strays.join(", ")
            ));
        }
    }

    /// The exit status of the command, if it has ended. Other processes of its group may still run.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.ended
    }

    /// True if a process of the group is left.
    pub(crate) fn group_lives(&self) -> bool {
        killpg(self.id, None) != Err(nix::errno::Errno::ESRCH)
    }
}

/// A live process, from `/proc/PID/stat`.
struct SeenProcess {
    name: String,
    group: Pid,
}

impl SeenProcess {
    /// `None` if the process has ended.
    fn of(pid: Pid) -> Option<Self> {
        let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let line = String::from_utf8_lossy(&line);
        // The name may contain any character. The fields after it: state, parent, group.
        let (start, rest) = line.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let lives = !["Z", "X"].contains(&fields.next()?);
        let group = fields.nth(1)?.parse().ok().map(Pid::from_raw)?;
        let name = start.split_once('(')?.1.to_owned();
        lives.then_some(Self { name, group })
    }

    fn is_guardian(&self) -> bool {
        self.name.as_bytes() == guardian::NAME.to_bytes()
    }
}

/// The children of all threads of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<i32>>()
    });
    pids.map(Pid::from_raw).collect()
}

impl Drop for Child {
    fn drop(&mut self) {
        // Only a panic drops a running command.
        if self.ended.is_none() {
            self.signal(Signal::SIGKILL);
        }
    }
}

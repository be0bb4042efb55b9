//! Runs the command as a loader: its output is the value. The output of a command that failed, was stopped or
//! was interrupted is discarded. On Linux the command dies with this process, but not the processes it started.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, gethostname, setsid};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::exit::{CONFIG, Exit, SOFTWARE, TIMEOUT};
use crate::inherited_store::{self, UrlFile};
use crate::messages::span;
use crate::run::command::ResolvedCommand;
use crate::session::Target;
use crate::sys;

/// The time between TERM and KILL, and between KILL and giving up.
pub(super) const GRACE: Duration = Duration::from_secs(5);
const DEATH_LIMIT: Duration = Duration::from_secs(1);

/// The maximal length of the command name in messages to other hosts.
const LONGEST_NAME: usize = 100;

/// A command that may run once, and its state.
pub(super) struct LoadJob {
    pub(super) program: ResolvedCommand,
    pub(super) target: Target,
    /// The time limit, after which it is stopped.
    pub(super) time: Duration,
    /// The maximal output, in bytes.
    pub(super) size: usize,
    pub(super) state: watch::Sender<LoadState>,
}

/// The state of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadState {
    /// Not started.
    Idle,
    /// Running as this process group. Has the signal to this process that asked it to end, if any.
    Running(Pid, Option<Signal>),
    /// Ended after such a signal, so its status says nothing about the command.
    Interrupted(ExitStatus, Signal),
    /// Ended by itself, or was stopped.
    Over,
}

/// The reason for a missing value.
#[derive(Debug)]
pub(super) struct LoadFailure {
    /// The exit code of this process.
    pub(super) code: u8,
    /// The failure, as shown to all hosts.
    what: String,
    /// The advice.
    pub(super) next: &'static str,
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for LoadFailure {}

impl LoadJob {
    /// Runs the command. The future never completes after an interrupt that ended the command.
    pub(super) async fn load(self: Arc<Self>) -> Result<Vec<u8>, LoadFailure> {
        let mut process = LoadProcess::start(&self).map_err(|error| {
            let exit = self.program.failed(&error);
            self.failed(exit.code(), &format!("cannot be started: {error}"), "")
        })?;
        self.state
            .send_replace(LoadState::Running(process.group, None));
        let ended = self.until_end(&mut process).await;
        match (ended, self.state()) {
            // The output may be incomplete, whatever the status.
            (Ok((status, _)), LoadState::Running(_, Some(signal))) => {
                self.state
                    .send_replace(LoadState::Interrupted(status, signal));
                std::future::pending().await
            }
            (ended, _) => {
                self.state.send_replace(LoadState::Over);
                let (status, value) = ended?;
                if status.success() {
                    return Ok(value);
                }
                let code = Exit::of_command(status).code();
                Err(self.failed(code, &how_it_ended(status), ""))
            }
        }
    }

    fn failed(&self, code: u8, how: &str, next: &'static str) -> LoadFailure {
        let name = self.program.note(LONGEST_NAME);
        let host = gethostname().unwrap_or_default();
        let what = format!("{name} {how}, on {}", host.to_string_lossy());
        LoadFailure { code, what, next }
    }

    /// The status and the output of the command, or the reason for stopping it.
    async fn until_end(
        &self,
        process: &mut LoadProcess,
    ) -> Result<(ExitStatus, Vec<u8>), LoadFailure> {
        let unreadable = |error: io::Error| {
            let what = format!("printed output that cannot be read: {error}");
            self.failed(SOFTWARE, &what, "")
        };
        let Some(mut stdout) = process.child.stdout.take() else {
            return Err(unreadable(io::Error::other("no pipe")));
        };
        let run = async {
            let mut value = Vec::new();
            let most = u64::try_from(self.size).unwrap_or(u64::MAX);
            // Until all writers have closed the pipe, as for `$(...)`.
            let mut some = (&mut stdout).take(most.saturating_add(1));
            some.read_to_end(&mut value).await.map_err(unreadable)?;
            if value.len() > self.size {
                let what = format!("printed more than {} bytes", self.size);
                let next = "--max-size SIZE allows more, up to 24MiB";
                return Err(self.failed(CONFIG, &what, next));
            }
            let status = process.child.wait().await.map_err(unreadable)?;
            Ok((status, value))
        };
        let ended = timeout(self.time, run).await.unwrap_or_else(|_| {
            let what = format!("was stopped after {}", span(self.time));
            Err(self.failed(TIMEOUT, &what, "--timeout DUR lets it run longer"))
        });
        if ended.is_err() {
            // Else the command might wait for a reader.
            drop(stdout);
            process.stop().await;
        } else {
            process.has_ended = true;
        }
        ended
    }

    /// Forwards a signal to the command.
    pub(super) fn pass_on(&self, group: Pid, signal: Signal, ends: bool) {
        self.state.send_if_modified(|state| match state {
            LoadState::Running(_, interrupted) => {
                *interrupted = interrupted.or(ends.then_some(signal));
                ends
            }
            _ => false,
        });
        send(group, signal);
        if ends {
            // A stopped process would not react.
            send(group, Signal::SIGCONT);
        }
    }

    pub(super) fn state(&self) -> LoadState {
        *self.state.borrow()
    }

    /// Waits until an interrupt has ended the command.
    pub(super) async fn interrupted(&self) -> (ExitStatus, Signal) {
        let mut state = self.state.subscribe();
        let is_interrupted = |state: &LoadState| matches!(state, LoadState::Interrupted(..));
        match state.wait_for(is_interrupted).await.as_deref() {
            Ok(LoadState::Interrupted(status, signal)) => (*status, *signal),
            // Cannot fail: `self` holds the sender.
            _ => std::future::pending().await,
        }
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(signal) => format!("was ended by {signal}"),
            Err(_) => format!("was ended by signal {signal}"),
        },
        (None, None) => "ended".into(),
    }
}

/// The running command in its own session and process group. Dropping it kills the group.
struct LoadProcess {
    child: Child,
    group: Pid,
    has_ended: bool,
    /// The URL file of the command.
    _url_file: Option<UrlFile>,
}

impl LoadProcess {
    /// To be called from the main thread: see [`sys::prepare`].
    fn start(job: &LoadJob) -> io::Result<Self> {
        let mut command = job.program.command();
        let (variables, url_file) = job.target.hand_on();
        inherited_store::apply(&variables, &mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Its own session: reading from a shared terminal would stop it, and this process too.
        sys::prepare(&mut command, None, || Ok(setsid().map(drop)?));
        let child = Command::from(command).spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("no number"))?;
        Ok(Self {
            child,
            group: Pid::from_raw(i32::try_from(id).map_err(io::Error::other)?),
            has_ended: false,
            _url_file: url_file,
        })
    }

    /// Asks the command to end, and kills it if it does not.
    async fn stop(&mut self) {
        send(self.group, Signal::SIGTERM);
        send(self.group, Signal::SIGCONT);
        self.has_ended = timeout(GRACE, self.child.wait()).await.is_ok();
        // Other processes of the group may be left.
        send(self.group, Signal::SIGKILL);
        if !self.has_ended {
            self.has_ended = timeout(DEATH_LIMIT, self.child.wait()).await.is_ok();
        }
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        if !self.has_ended {
            send(self.group, Signal::SIGKILL);
        }
    }
}

fn send(group: Pid, signal: Signal) {
    // Fails when the group is empty.
    let _sent: nix::Result<()> = killpg(group, signal);
}

/// Completes after `limit`, but never once the command has started.
pub(super) async fn patience(job: &LoadJob, limit: Duration) {
    sleep(limit).await;
    if job.state() != LoadState::Idle {
        std::future::pending::<()>().await;
    }
}

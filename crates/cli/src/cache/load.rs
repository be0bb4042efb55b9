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
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::exit::{CONFIG, Exit, TIMEOUT};
use crate::inherited_store::{StoreLocation, UrlFile, Variables};
use crate::messages::span;
use crate::run::command::ResolvedCommand;
use crate::store::Target;
use crate::sys;

/// The time between TERM and KILL, and between KILL and giving up.
pub(super) const GRACE: Duration = Duration::from_secs(5);
const DEATH_LIMIT: Duration = Duration::from_secs(1);

/// The maximal length of the command name in messages to other hosts.
const LONGEST_NAME: usize = 100;

/// A command that may run once, and its state.
pub(super) struct LoadJob {
    program: ResolvedCommand,
    /// The location of the store.
    place: StoreLocation,
    /// The variables that make the command use the same key names.
    naming: Variables,
    limits: LoadLimits,
    state: watch::Sender<LoadState>,
}

/// The limits of the command.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadLimits {
    /// The time limit, after which it is stopped.
    pub(super) time: Duration,
    /// The maximal output, in bytes.
    pub(super) size: usize,
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

/// The reason for stopping the command.
enum StopCause {
    Time,
    Size,
    Unreadable(io::Error),
}

impl LoadJob {
    pub(super) fn new(program: ResolvedCommand, target: &Target, limits: LoadLimits) -> Self {
        let naming = target.naming().iter();
        let naming = naming.map(|(name, value)| (*name, Some(value.into())));
        Self {
            program,
            place: target.place().clone(),
            naming: naming.collect(),
            limits,
            state: watch::Sender::new(LoadState::Idle),
        }
    }

    /// Runs the command. The future never completes after an interrupt that ended the command.
    pub(super) async fn load(self: Arc<Self>) -> Result<Vec<u8>, LoadFailure> {
        let mut process = LoadProcess::start(&self).map_err(|error| {
            let exit = self.program.failed(&error);
            self.failed(exit.code(), &format!("cannot be started: {error}"), "")
        })?;
        self.state
            .send_replace(LoadState::Running(process.group, None));
        let ended = self.until_end(&mut process).await;
        let interrupted = match *self.state.borrow() {
            LoadState::Running(_, signal) => signal,
            _ => None,
        };
        match (ended, interrupted) {
            // The output may be incomplete, whatever the status.
            (Ok((status, _)), Some(signal)) => {
                self.state
                    .send_replace(LoadState::Interrupted(status, signal));
                std::future::pending().await
            }
            (ended, _) => {
                self.state.send_replace(LoadState::Over);
                self.judge(ended)
            }
        }
    }

    fn judge(
        &self,
        ended: Result<(ExitStatus, Vec<u8>), StopCause>,
    ) -> Result<Vec<u8>, LoadFailure> {
        Err(match ended {
            Ok((status, value)) if status.success() => return Ok(value),
            Ok((status, _)) => {
                self.failed(Exit::of_command(status).code(), &how_it_ended(status), "")
            }
            Err(StopCause::Time) => {
                let what = format!("was stopped after {}", span(self.limits.time));
                self.failed(TIMEOUT, &what, "--timeout DUR lets it run longer")
            }
            Err(StopCause::Size) => {
                let what = format!("printed more than {} bytes", self.limits.size);
                self.failed(CONFIG, &what, "--max-size SIZE allows more, up to 24MiB")
            }
            Err(StopCause::Unreadable(error)) => {
                let what = format!("printed output that cannot be read: {error}");
                self.failed(crate::exit::SOFTWARE, &what, "")
            }
        })
    }

    fn failed(&self, code: u8, how: &str, next: &'static str) -> LoadFailure {
        let name = self.program.note(LONGEST_NAME);
        let host = gethostname().unwrap_or_default();
        let what = format!("{name} {how}, on {}", host.to_string_lossy());
        LoadFailure { code, what, next }
    }

    /// The output and the status of the command, or the reason for stopping it.
    async fn until_end(
        &self,
        process: &mut LoadProcess,
    ) -> Result<(ExitStatus, Vec<u8>), StopCause> {
        let Some(mut stdout) = process.child.stdout.take() else {
            return Err(StopCause::Unreadable(io::Error::other("no pipe")));
        };
        let run = async {
            let value = all_of(&mut stdout, self.limits.size).await?;
            let status = process.child.wait().await.map_err(StopCause::Unreadable)?;
            Ok((status, value))
        };
        let ended = timeout(self.limits.time, run).await;
        let ended = ended.unwrap_or(Err(StopCause::Time));
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
        loop {
            if let LoadState::Interrupted(status, signal) = *state.borrow_and_update() {
                return (status, signal);
            }
            // Cannot fail: `self` holds the sender.
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Reads until all writers have closed the pipe, as for `$(...)`.
async fn all_of(stdout: &mut (impl AsyncRead + Unpin), size: usize) -> Result<Vec<u8>, StopCause> {
    let mut value = Vec::new();
    let most = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(1);
    let read = stdout.take(most).read_to_end(&mut value).await;
    read.map_err(StopCause::Unreadable)?;
    if value.len() > size {
        return Err(StopCause::Size);
    }
    Ok(value)
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
        let (store, url_file) = job.place.hand_on();
        for (name, value) in store.iter().chain(&job.naming) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
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

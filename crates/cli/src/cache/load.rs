//! The command as a loader: what it prints is the value. Must never give out what a command printed that failed, was stopped or
//! was interrupted, and never outlive this process (on Linux; what it has started may).

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

/// Between TERM and KILL, and between KILL and no more patience.
pub(super) const GRACE: Duration = Duration::from_secs(5);
const BURIAL: Duration = Duration::from_secs(1);

/// The longest name of a command that others are told.
const LONGEST_NAME: usize = 100;

/// A command that may be run, once, and how far it is.
pub(super) struct LoadJob {
    program: ResolvedCommand,
    /// Where its store was given.
    place: StoreLocation,
    /// The variables by which it makes the same keys of names.
    naming: Variables,
    limits: LoadLimits,
    state: watch::Sender<LoadState>,
}

/// What it may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadLimits {
    /// Its time; then it is stopped.
    pub(super) time: Duration,
    /// What it may print, in bytes.
    pub(super) size: usize,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadState {
    /// It was not started.
    Idle,
    /// It runs, as this process group, and was asked to end by this signal to us.
    Running(Pid, Option<Signal>),
    /// It ended so after such a signal: that says nothing about the command.
    Interrupted(ExitStatus, Signal),
    /// It ended by itself, or had to be stopped.
    Over,
}

/// Why it brought no value.
#[derive(Debug)]
pub(super) struct LoadFailure {
    /// What this process exits with.
    pub(super) code: u8,
    /// What happened, for all hosts to know.
    what: String,
    /// What to type.
    pub(super) next: &'static str,
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for LoadFailure {}

/// Why it is stopped.
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

    /// Runs it. Never ends after an interrupt that ended the command.
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
            // Whatever it says: what it printed may be half of it.
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
                let what = format!("printed what cannot be read: {error}");
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

    /// What it printed, and how it ended; or why it was stopped.
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
            // Or it might wait for someone to read.
            drop(stdout);
            process.stop().await;
        } else {
            process.has_ended = true;
        }
        ended
    }

    /// Passes a signal to us on to it.
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
            // One that is stopped hears nothing else.
            send(group, Signal::SIGCONT);
        }
    }

    pub(super) fn state(&self) -> LoadState {
        *self.state.borrow()
    }

    /// Waits until it has ended by an interrupt.
    pub(super) async fn interrupted(&self) -> (ExitStatus, Signal) {
        let mut state = self.state.subscribe();
        loop {
            if let LoadState::Interrupted(status, signal) = *state.borrow_and_update() {
                return (status, signal);
            }
            // An error would mean that the sender, and so `self`, is gone.
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Reads to the end, which is when nobody is left who could write, as for `$(...)`.
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

/// The running command, in a session and process group of its own. Dropping it kills the group.
struct LoadProcess {
    child: Child,
    group: Pid,
    has_ended: bool,
    /// What it finds its store by.
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
        // A session of its own: it may not read from a terminal that others see, which would stop it, and us with it.
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

    /// Asks it to end, and kills it if it does not.
    async fn stop(&mut self) {
        send(self.group, Signal::SIGTERM);
        send(self.group, Signal::SIGCONT);
        self.has_ended = timeout(GRACE, self.child.wait()).await.is_ok();
        // Others of its group may be left.
        send(self.group, Signal::SIGKILL);
        if !self.has_ended {
            self.has_ended = timeout(BURIAL, self.child.wait()).await.is_ok();
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
    // Fails when nobody is left in it.
    let _sent: nix::Result<()> = killpg(group, signal);
}

/// Ends after `limit`, but not while it runs or has run.
pub(super) async fn patience(job: &LoadJob, limit: Duration) {
    sleep(limit).await;
    if job.state() != LoadState::Idle {
        std::future::pending::<()>().await;
    }
}

//! `leasehold cache get-or-refresh`: prints the stored value, or runs the command to make a new one. A stale
//! value is printed at once, unless the options demand a fresh one.

use std::cell::Cell;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use leasehold_cache::{Cache, Error, LoadFailed, Origin, Raw};
use nix::sys::signal::Signal;

use super::args::{GetOrRefresh, IfUnavailable, RefreshMode};
use super::load::{LoadFailure, LoadJob, LoadLimits, LoadState, patience};
use super::stored::{for_cache, refused};
use crate::acquire_ui;
use crate::exit::{BUSY, Exit, TIMEOUT, UNAVAILABLE, exit};
use crate::messages::{quoted, say, span};
use crate::output;
use crate::run::command::ResolvedCommand;
use crate::session::{in_runtime, refused_by_system, with_client};
use crate::signals::Signals;
use crate::sys;
use crate::terminal::Terminal;

/// The time limit for storing a loaded value.
const COMMIT: Duration = Duration::from_secs(10);

/// Runs the verb.
pub(super) fn get_or_refresh(args: &GetOrRefresh) -> Exit {
    begin(args)
        .unwrap_or_else(|exit| exit)
        .reworded("leasehold run LOCK", "leasehold cache get-or-refresh KEY")
}

fn begin(args: &GetOrRefresh) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    let limits = LoadLimits {
        time: args.timeout,
        size: args.max_size,
    };
    // A host without the command can still print values of other hosts.
    let found = ResolvedCommand::find(&args.command);
    let job = found.map(|program| Arc::new(LoadJob::new(program, &target, limits)));
    let again = job.as_ref().ok().cloned();
    let unanswered = Cell::new(true);
    let is_apart = args.refresh == RefreshMode::Background
        && !args.must_be_fresh
        && target.place().is_found_again();
    let exit = with_client(target, async |client, signals| {
        let cache = Cache::new(client).raw().policy(args.policy());
        let work = CacheCall {
            args,
            cache,
            is_apart,
            unanswered: &unanswered,
        };
        let forwarded = job.as_ref().ok().cloned();
        tokio::select! {
            biased;
            exit = forward_signals(forwarded.as_deref(), signals) => Err(exit),
            exit = work.answer(client, job) => exit,
        }
    });
    let exit = for_cache(exit);
    let is_down = exit.code() == UNAVAILABLE && unanswered.get();
    match again {
        Some(job) if is_down && args.if_unavailable == IfUnavailable::Run && !is_background() => {
            unguarded(args, job, &exit)
        }
        _ => Ok(exit),
    }
}

/// Forwards signals to the running command. Returns the exit when a signal ends the command or this process.
async fn forward_signals(job: Option<&LoadJob>, signals: &mut Signals) -> Exit {
    let interrupted = async {
        match job {
            Some(job) => job.interrupted().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(interrupted);
    loop {
        let signal = tokio::select! {
            biased;
            (status, signal) = &mut interrupted => return of_interrupted(status, signal),
            signal = signals.next() => signal,
        };
        let ends = Signals::is_ending(signal);
        match (job, job.map(LoadJob::state)) {
            (Some(job), Some(LoadState::Running(group, _))) => job.pass_on(group, signal, ends),
            _ if ends => return by(signal),
            _ => {}
        }
    }
}

/// The exit after a forwarded signal ended the command. If the command then succeeded, its output may be
/// incomplete.
fn of_interrupted(status: ExitStatus, signal: Signal) -> Exit {
    if status.success() {
        return by(signal);
    }
    if status.signal() == Some(Signal::SIGINT as i32) {
        return by(Signal::SIGINT);
    }
    Exit::of_command(status)
}

/// The exit after a signal. A calling script must notice a signal from the terminal.
fn by(signal: Signal) -> Exit {
    acquire_ui::interrupted(signal, Terminal::controlling().as_ref())
}

/// Runs the command without the protection of the cache.
fn unguarded(args: &GetOrRefresh, job: Arc<LoadJob>, exit: &Exit) -> Result<Exit, Exit> {
    say(&format!(
        "{}\n    running the command without the cache (--if-unavailable run)",
        exit.reason()
    ));
    in_runtime(async {
        let mut signals = Signals::catch().map_err(|error| refused_by_system(&error))?;
        let forwarded = job.clone();
        let work = async {
            let value = job.load().await.map_err(|failed| {
                let FailureText { code, text } = told(&args.key, &failed);
                Exit::saying(code, text)
            })?;
            output::print_on_thread(value).await?;
            Ok(Exit::quiet(0))
        };
        tokio::select! {
            biased;
            exit = forward_signals(Some(&forwarded), &mut signals) => Err(exit),
            exit = work => exit,
        }
    })
}

/// The exit code and the message for a failed command.
struct FailureText {
    code: u8,
    text: String,
}

fn told(key: &str, failed: &LoadFailure) -> FailureText {
    let code = failed.code;
    let mut text = format!(
        "no value of {}: {} (exit {code})",
        quoted(key),
        failed.to_string().escape_debug()
    );
    if !failed.next.is_empty() {
        text = format!("{text}\n    next    {}", failed.next);
    }
    FailureText { code, text }
}

/// A call with a connection.
struct CacheCall<'a> {
    args: &'a GetOrRefresh,
    cache: Cache<Raw>,
    /// Stale values are refreshed in the background.
    is_apart: bool,
    /// True until the store has answered.
    unanswered: &'a Cell<bool>,
}

impl CacheCall<'_> {
    async fn answer(self, client: &Client, job: Result<Arc<LoadJob>, Exit>) -> Result<Exit, Exit> {
        let ended = if is_background() {
            self.refresh(job?).await
        } else {
            self.get(job).await
        };
        // A loaded value may still be on its way to the store.
        client.close_within(COMMIT).await;
        ended
    }

    /// Prints the stored value, or a new one.
    async fn get(&self, job: Result<Arc<LoadJob>, Exit>) -> Result<Exit, Exit> {
        let stored = self.cache.get::<Vec<u8>>(&self.args.key).await;
        let stored = stored.map_err(refused)?;
        self.unanswered.set(false);
        match (stored, job) {
            (Some(got), _) if got.origin() == Origin::Fresh => print(got.into_inner()).await,
            (Some(got), Ok(_)) if self.is_apart => {
                if let Err(error) = start_background(self.args.refresh_log.as_deref()) {
                    say(&format!(
                        "{} is stale, and no refresh can be started: {error}",
                        quoted(&self.args.key)
                    ));
                }
                print(got.into_inner()).await
            }
            (_, Ok(job)) => self.load(job).await,
            (_, Err(exit)) => self.instead(exit).await,
        }
    }

    /// Prints a new value, from this or another process that runs the command.
    async fn load(&self, job: Arc<LoadJob>) -> Result<Exit, Exit> {
        let ask = || {
            let job = job.clone();
            let call = self.cache.get_or_refresh(&self.args.key, || job.load());
            call.must_be_fresh()
        };
        // The wait limit starts only when another process is known to load, however slow the store is.
        let got = match ask().never_wait().await {
            Err(Error::Busy { .. }) => tokio::select! {
                biased;
                got = ask() => got,
                () = patience(&job, self.args.wait) => {
                    return self.instead(self.busy()).await;
                }
            },
            got => got,
        };
        match got {
            Ok(got) => print(got.into_inner()).await,
            Err(Error::Load(failed)) => self.instead(self.failed(&failed)).await,
            Err(error) => {
                self.unanswered.set(job.state() == LoadState::Idle);
                self.instead(refused(error)).await
            }
        }
    }

    /// Refreshes the value if no other process does.
    async fn refresh(&self, job: Arc<LoadJob>) -> Result<Exit, Exit> {
        let call = self
            .cache
            .get_or_refresh(&self.args.key, || job.load())
            .must_be_fresh()
            .never_wait();
        match call.await {
            Ok(_) | Err(Error::Busy { .. }) => Ok(Exit::quiet(0)),
            Err(Error::Load(failed)) => Err(self.failed(&failed)),
            Err(error) => Err(refused(error)),
        }
    }

    /// Prints the stale value instead of failing with `exit`, if there is one and it may be used.
    async fn instead(&self, exit: Exit) -> Result<Exit, Exit> {
        if self.args.must_be_fresh {
            return Err(exit);
        }
        let Ok(Some(got)) = self.cache.get::<Vec<u8>>(&self.args.key).await else {
            return Err(exit);
        };
        say(&format!(
            "{}; the stored value is printed, {} old",
            exit.reason(),
            span(got.age())
        ));
        print(got.into_inner()).await
    }

    fn busy(&self) -> Exit {
        exit!(
            TIMEOUT,
            "no value of {}: another process still loads it after {} (exit {TIMEOUT})\n    The command was not run.\n    next    --wait DUR waits longer",
            quoted(&self.args.key),
            span(self.args.wait)
        )
    }

    fn failed(&self, failed: &LoadFailed) -> Exit {
        let cause = failed.cause.as_deref();
        let rest = format!("no host tries again for {}", span(failed.retry_after));
        match cause.and_then(|cause| cause.downcast_ref::<LoadFailure>()) {
            Some(ours) => {
                let FailureText { code, text } = told(&self.args.key, ours);
                exit!(code, "{text}\n    Nothing was stored; {rest}.")
            }
            None => exit!(
                BUSY,
                "no value of {}: a moment ago, {} (exit {BUSY})\n    The command was not run: {rest}.",
                quoted(&self.args.key),
                failed.text.escape_debug()
            ),
        }
    }
}

async fn print(value: Vec<u8>) -> Result<Exit, Exit> {
    output::print_on_thread(value).await?;
    Ok(Exit::quiet(0))
}

/// The name of the process, also in `ps`.
const BACKGROUND: &str = "leasehold-refresh";

/// True if this process is a background refresh.
fn is_background() -> bool {
    env::args_os().next().is_some_and(|name| name == BACKGROUND)
}

/// Starts a background refresh: this program with the same arguments, environment and directory. Its name tells it to
/// refresh the value if no other process does. It keeps no file of the caller open. Its stderr and that of its command
/// are appended to `log`, or discarded.
fn start_background(log: Option<&Path>) -> io::Result<()> {
    let stderr = match log {
        Some(log) => Stdio::from(File::options().create(true).append(true).open(log)?),
        None => Stdio::null(),
    };
    let mut command = Command::new(program()?);
    command
        .arg0(BACKGROUND)
        .args(env::args_os().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    sys::detach(&mut command);
    // Not waited for: this process ends first, and then the system reaps it.
    command.spawn().map(drop)
}

/// The file of this program, even if it was replaced meanwhile.
fn program() -> io::Result<PathBuf> {
    let this = Path::new("/proc/self/exe");
    if fs::symlink_metadata(this).is_ok() {
        return Ok(this.to_owned());
    }
    env::current_exe()
}

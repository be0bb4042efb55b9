//! `leasehold cache`: caches the output of a slow command for all hosts. `get-or-refresh` prints the stored value, or runs the
//! command to make a new one. A stale value is printed at once, unless the options demand a fresh one. Errors about values do
//! not mention locks.

mod load;

use std::cell::Cell;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use leasehold::{Client, Invalid};
use leasehold_cache::{Cached, Error, LoadFailed, Origin, Policy, Raw};
use leasehold_core::LockName;
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::sync::watch;

use self::load::{GRACE, LoadFailure, LoadJob, LoadState, patience};
use crate::config::{duration, hold, size, ttl};
use crate::exit::{
    BUSY, CONFIG, Exit, HELP, LOCK_UNKNOWN, NO_VALUE, SOFTWARE, TIMEOUT, UNAVAILABLE, exit,
};
use crate::messages::{quoted, say, span};
use crate::output::{self, print_on_thread};
use crate::run::command::ResolvedCommand;
use crate::session::{in_runtime, with_client, with_client_until_signal};
use crate::store::{ON_THIS_HOST, StoreArgs, WHERE};
use crate::terminal::{Signals, Terminal};
use crate::view::millis;
use crate::{acquire_ui, sys};

const ABOUT: &str = "\
KEY is a name for the output of CMD. Put everything that the output depends on into it (report:eu:2026).

  leasehold cache get-or-refresh report --fresh 1m --stale 1h -- ./report.sh
  leasehold cache invalidate report      the data has changed: the next reader refreshes the value
  leasehold cache get report             the stored value, whatever its age";

/// Cache the output of a slow command for all hosts
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Cache {
    #[command(subcommand)]
    verb: CacheVerb,
}

#[derive(Debug, Subcommand)]
enum CacheVerb {
    GetOrRefresh(GetOrRefresh),
    Get(Get),
    Invalidate(Invalidate),
}

/// Runs the verb.
pub(crate) fn cache(args: &Cache) -> Result<Exit, Exit> {
    let (done, verb, command) = match &args.verb {
        CacheVerb::GetOrRefresh(args) => (get_or_refresh(args), "get-or-refresh", " -- CMD"),
        CacheVerb::Get(args) => (get_stored(args), "get", ""),
        CacheVerb::Invalidate(args) => (invalidate(args), "invalidate", ""),
    };
    let here = format!("leasehold cache {verb} --url local: KEY{command}");
    done.map_err(|exit| {
        exit.reworded(WHERE, "where are the values kept?")
            .reworded(ON_THIS_HOST, &here)
    })
}

const GET_HELP: &str = "\
Prints the stored bytes, fresh or stale, and runs nothing. A value that a program stored with the library is
printed in its format, JSON by default. A key that is not a cache entry counts as no value.

Exit codes: 0 printed; 66 there is no value; 64 wrong usage, or an invalid key; 69 the store does not answer;
77 it refuses user, password or permission; 78 no store was given, or the URL is not a store";

/// Print the stored value
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
struct Get {
    #[command(flatten)]
    store: StoreArgs,

    /// Treat a stale value as missing
    #[arg(long)]
    must_be_fresh: bool,

    /// Print one JSON document about the value (leasehold.cache-get/1), and not the value
    #[arg(long)]
    json: bool,

    /// The name of the value
    key: String,
}

/// The document of `--json`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.cache-get/1")]
struct CachedValue<'a> {
    store: &'a str,
    key: &'a str,
    /// `fresh`, `stale` or `none`.
    state: &'static str,
    age_ms: Option<u64>,
    bytes: Option<usize>,
}

/// Runs `leasehold cache get`. It never loads a value.
fn get_stored(args: &Get) -> Result<Exit, Exit> {
    let done = with_client_until_signal(&args.store.target()?, async |client| {
        let cache = leasehold_cache::Cache::new(client).any_format();
        let found = cache.get::<Vec<u8>>(&args.key).await.map_err(refused)?;
        if args.json {
            output::print_json_answer(&about(client.store(), &args.key, found.as_ref()))?;
        }
        match found {
            Some(got) if args.must_be_fresh && got.origin() == Origin::Stale => {
                Err(nothing(&args.key, Some(got.age())))
            }
            Some(_) if args.json => Ok(Exit::quiet(0)),
            Some(got) => print_on_thread(got.into_inner()).await,
            None => Err(nothing(&args.key, None)),
        }
    });
    done.map_err(|exit| for_cache(exit).without_command())
}

fn about<'a>(store: &'a str, key: &'a str, found: Option<&Cached<Vec<u8>>>) -> CachedValue<'a> {
    CachedValue {
        store,
        key,
        state: match found.map(Cached::origin) {
            None => "none",
            Some(Origin::Stale) => "stale",
            Some(_) => "fresh",
        },
        age_ms: found.map(|got| millis(got.age())),
        bytes: found.map(|got| got.len()),
    }
}

fn nothing(key: &str, stale: Option<Duration>) -> Exit {
    let what = match stale {
        None => "there is no value".to_owned(),
        Some(age) => format!("the value is stale ({} old)", span(age)),
    };
    exit!(NO_VALUE, "{}: {what} (exit {NO_VALUE})", quoted(key))
}

const INVALIDATE_HELP: &str = "\
From now on the values are stale on all hosts, and so are values that are being loaded. The next reader
refreshes them. A missing value is not an error. Several keys are all validated first, then invalidated one
after the other; a failure stops at its key, and the message names it.

Exit codes: 0 done; 69 the store does not answer: the values may still be fresh, run it again; 64 wrong usage,
or an invalid key; 77 the store refuses user, password or permission; 78 no store, or a key is not a cache entry";

/// The message if the store did not confirm.
const UNCONFIRMED: &str = "The stored values may still count as fresh. Run it again.";

/// Mark stored values as stale
#[derive(Debug, Args)]
#[command(after_help = INVALIDATE_HELP)]
struct Invalidate {
    #[command(flatten)]
    store: StoreArgs,

    /// Also delete the values: readers wait for new ones
    #[arg(long)]
    remove: bool,

    /// The names of the values
    #[arg(required = true)]
    key: Vec<String>,
}

/// Runs `leasehold cache invalidate`. Success means that the store confirmed it.
fn invalidate(args: &Invalidate) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    for key in &args.key {
        LockName::new(key).map_err(|invalid| Invalid {
            what: "cache key",
            ..invalid
        })?;
    }
    let done = with_client_until_signal(&target, async |client| {
        let cache = leasehold_cache::Cache::new(client);
        for (at, key) in args.key.iter().enumerate() {
            let done = if args.remove {
                cache.remove(key).await
            } else {
                cache.invalidate(key).await
            };
            done.map_err(|error| failed_at(&args.key, at, error))?;
        }
        Ok(Exit::quiet(0))
    });
    done.map_err(|exit| for_cache(exit.reworded(LOCK_UNKNOWN, UNCONFIRMED)).without_command())
}

/// The exit for a failure at the key with index `at`. With several keys it names the key, and says which ones
/// are done.
fn failed_at(keys: &[String], at: usize, error: Error) -> Exit {
    let exit: Exit = match error {
        Error::Store(store) => leasehold::Error::Store(store).into(),
        other => refused(other),
    };
    match keys.get(at) {
        Some(key) if keys.len() > 1 => exit.adding(&format!(
            "at {}, {} of {} keys: those before it are done, those after it are not",
            quoted(key),
            at + 1,
            keys.len()
        )),
        _ => exit,
    }
}

/// The exit for an error of the library. Busy and failed loads get a longer message where they occur.
fn refused(error: Error) -> Exit {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Store(store) => for_cache(leasehold::Error::Store(store).into()),
        Error::Value { .. } => exit!(
            CONFIG,
            "{error} (exit {CONFIG})\n    next    choose another key, or a separate --namespace for cache values"
        ),
        other => exit!(SOFTWARE, "{other} (exit {SOFTWARE})"),
    }
}

/// Rewords a message that was written for locks.
fn for_cache(exit: Exit) -> Exit {
    exit.reworded(LOCK_UNKNOWN, "The state of the value is not known.")
}

/// The time limit for storing a loaded value.
const COMMIT: Duration = Duration::from_secs(10);

/// Disables the library's time limit. This verb has its own, which applies only while waiting for another
/// process.
const FOR_EVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);

const REFRESH_HELP: &str = "\
Fresh value: prints the stored bytes and does not run CMD. Stale value: prints it at once, and one process of
all hosts refreshes it in the background. No value: one process of all hosts runs CMD, the others wait for it.

CMD gets no stdin, writes its stderr to stderr, and its stdout is the value. Any status but 0 is a failure:
nothing is stored, and no host runs CMD again for --back-off, twice as long each time. Then the stale value is
printed, with a message on stderr and status 0. Without a stale value, or with --must-be-fresh, the status is
CMD's own if it ran here, and 75 if it failed on another host. A background refresh ends with the systemd unit,
container or CI step that it was started in: use --refresh inline there.

  leasehold cache get-or-refresh report --fresh 1m --stale 1h -- ./report.sh
  weather=$(leasehold cache get-or-refresh weather:paris -- curl -sf https://wttr.in/paris)

In the table below, \"the lock\" means the right to run CMD for this KEY.";

/// Print the stored value, or run the command to make a new one if no other process does
#[derive(Debug, Args)]
#[command(after_help = format!("{REFRESH_HELP}\n\n{HELP}"))]
struct GetOrRefresh {
    #[command(flatten)]
    store: StoreArgs,

    /// How long a value is fresh; up to a tenth of this time is taken off at random
    #[arg(long, value_name = "DUR", value_parser = hold, default_value = "60s")]
    fresh: Duration,

    /// How long after that a stale value may still be printed, while it is refreshed or CMD fails
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "10m")]
    stale: Duration,

    /// Wait for at most this long for another process to run CMD, then exit with 124
    #[arg(short, long, value_name = "DUR", value_parser = duration, default_value = "30s")]
    wait: Duration,

    /// Never print a stale value: wait for a fresh one
    #[arg(long)]
    must_be_fresh: bool,

    /// How to refresh a stale value: background, or inline (wait for the fresh one)
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    refresh: RefreshMode,

    /// A file to which a background refresh appends CMD's stderr; by default it is discarded
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    refresh_log: Option<PathBuf>,

    /// Stop CMD after this long (TERM, after 5s KILL); this counts as a failure with 124
    #[arg(long, value_name = "DUR", value_parser = hold, default_value = "10m")]
    timeout: Duration,

    /// Stop CMD if it prints more than this (at most 24MiB); this counts as a failure with 78
    #[arg(long, value_name = "SIZE", value_parser = max_size, default_value = "16MiB", hide_short_help = true)]
    max_size: usize,

    /// How long no host runs CMD again after a failure; up to half of it is taken off at random, and it doubles
    /// with each failure in a row, up to 30s
    #[arg(long, value_name = "DUR", value_parser = ttl, default_value = "1s", hide_short_help = true)]
    back_off: Duration,

    /// What to do if the store does not answer: fail (exit with 69), or run (run CMD, on every host)
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_short_help = true
    )]
    if_unavailable: IfUnavailable,

    /// The name of the value
    key: String,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How a stale value is refreshed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum RefreshMode {
    #[default]
    Background,
    Inline,
}

/// The action if the store does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum IfUnavailable {
    #[default]
    Fail,
    Run,
}

/// Parses a size, up to the maximal size of a value.
fn max_size(text: &str) -> Result<usize, String> {
    let most = leasehold_cache::MOST_BYTES;
    match size(text)? {
        bytes if bytes > most => {
            let most = most >> 20;
            Err(format!("is more than {most} MiB, the most that is stored"))
        }
        bytes => Ok(bytes),
    }
}

/// Runs the verb.
fn get_or_refresh(args: &GetOrRefresh) -> Result<Exit, Exit> {
    begin(args)
        .map_err(|exit| exit.reworded("leasehold run LOCK", "leasehold cache get-or-refresh KEY"))
}

fn begin(args: &GetOrRefresh) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    // A host without the command can still print values of other hosts.
    let found = ResolvedCommand::find(&args.command);
    let job = found.map(|program| {
        Arc::new(LoadJob {
            program,
            target: target.clone(),
            time: args.timeout,
            size: args.max_size,
            state: watch::Sender::new(LoadState::Idle),
        })
    });
    let again = job.as_ref().ok().cloned();
    let unanswered = Cell::new(true);
    let is_apart = args.refresh == RefreshMode::Background
        && !args.must_be_fresh
        && target.place.is_found_again();
    let done = with_client(&target, async |client, signals| {
        let policy = Policy::default()
            .fresh_for(args.fresh)
            .stale_for(args.stale)
            .wait_at_most(FOR_EVER)
            .stale_if_error(false)
            .load_at_most(args.timeout.saturating_add(GRACE))
            .back_off(args.back_off)
            // No early refresh: this process ends before it could load the next value.
            .eagerness(0.0);
        let cache = leasehold_cache::Cache::new(client).raw().policy(policy);
        let work = CacheCall {
            args,
            cache,
            is_apart,
            unanswered: &unanswered,
        };
        tokio::select! {
            biased;
            exit = forward_signals(again.as_deref(), signals) => Err(exit),
            exit = work.answer(client, job) => exit,
        }
    });
    let exit = match done {
        Err(exit) => for_cache(exit),
        done => return done,
    };
    let is_down = exit.code() == UNAVAILABLE && unanswered.get();
    match again {
        Some(job) if is_down && args.if_unavailable == IfUnavailable::Run && !is_background() => {
            unguarded(args, &job, &exit)
        }
        _ => Err(exit),
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
fn unguarded(args: &GetOrRefresh, job: &Arc<LoadJob>, exit: &Exit) -> Result<Exit, Exit> {
    say(&format!(
        "{}\n    running the command without the cache (--if-unavailable run)",
        exit.reason()
    ));
    in_runtime(async {
        let mut signals = Signals::catch()?;
        let work = async {
            let loaded = job.clone().load().await;
            print_on_thread(loaded.map_err(|failed| told(&args.key, &failed))?).await
        };
        tokio::select! {
            biased;
            exit = forward_signals(Some(job), &mut signals) => Err(exit),
            exit = work => exit,
        }
    })
}

/// The exit for a failed command.
fn told(key: &str, failed: &LoadFailure) -> Exit {
    let (code, key) = (failed.code, quoted(key));
    let why = failed.to_string();
    let exit = exit!(
        code,
        "no value of {key}: {} (exit {code})",
        why.escape_debug()
    );
    match failed.next {
        "" => exit,
        next => exit.adding(&format!("next    {next}")),
    }
}

/// A call with a connection.
struct CacheCall<'a> {
    args: &'a GetOrRefresh,
    cache: leasehold_cache::Cache<Raw>,
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
            (Some(got), _) if got.origin() == Origin::Fresh => {
                print_on_thread(got.into_inner()).await
            }
            (Some(got), Ok(_)) if self.is_apart => {
                if let Err(error) = start_background(self.args.refresh_log.as_deref()) {
                    say(&format!(
                        "{} is stale, and no refresh can be started: {error}",
                        quoted(&self.args.key)
                    ));
                }
                print_on_thread(got.into_inner()).await
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
            Ok(got) => print_on_thread(got.into_inner()).await,
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
        print_on_thread(got.into_inner()).await
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
                told(&self.args.key, ours).adding(&format!("Nothing was stored; {rest}."))
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

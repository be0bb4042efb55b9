//! `leasehold acquire`, `renew`, `release`, `check`: a lease that outlives its process and is identified by a
//! token, for the steps of a pipeline. Nothing renews it automatically. A token is never shown in a message.

use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Detached, Error, LeaseStatus, LossCause, Lost};
use leasehold_core::LockName;
use leasehold_serve::documents::{Acquired, Checked};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;

use crate::acquire_ui::{self, KindArgs, LockRequest, RetryHint, WaitArgs, WaitFacts};
use crate::config::{duration, ttl};
use crate::exit::{Exit, LOST, SOFTWARE, USAGE, exit};
use crate::messages::{quoted, span};
use crate::output;
use crate::session::{RELEASE, Released, with_client, with_client_until_signal};
use crate::store::StoreArgs;
use crate::terminal::{Signals, Terminal};
use crate::view::millis;

/// An upper limit for the length of a token.
const LONGEST: u64 = 4096;

/// The arguments that identify a lease. Their defaults come from the environment that `leasehold run` and
/// `leasehold acquire --env` provide.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// The lock; by default, the one of the environment
    #[arg(value_name = "LOCK", env = "LEASEHOLD_LOCK")]
    lock: Option<String>,

    /// The token that `leasehold acquire` printed, including the part after #; - reads it from stdin. Other
    /// users can see the command line of a process: prefer the environment or stdin
    #[arg(long, value_name = "TOKEN", env = "LEASEHOLD_TOKEN")]
    token: Option<String>,
}

/// Runs `work` with the lock and the lease of the arguments.
fn with_lease(
    store: &StoreArgs,
    lease: &LeaseArgs,
    work: impl AsyncFnOnce(&str, Detached) -> Result<Exit, Exit>,
) -> Result<Exit, Exit> {
    // An empty variable counts as unset.
    let given = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    let lock = given(&lease.lock).ok_or_else(|| missing("lock", "LEASEHOLD_LOCK"))?;
    LockName::new(&lock)?;
    let token = match given(&lease.token).ok_or_else(|| missing("token", "LEASEHOLD_TOKEN"))? {
        dash if dash == "-" => from_stdin()?,
        token => token,
    };
    with_client_until_signal(&store.target()?, async |client: &Client| {
        let detached = client.detached(&lock, &token)?;
        work(&lock, detached).await
    })
}

fn missing(what: &str, variable: &str) -> Exit {
    exit!(
        USAGE,
        "no {what} given, and {variable} is not set (exit {USAGE})\n    next    run this under `leasehold run`, or after: set -a; eval \"$(leasehold acquire --ttl 20m --env LOCK)\"; set +a\n            in a shell, a variable that is set counts only if it is exported"
    )
}

fn from_stdin() -> Result<String, Exit> {
    let mut line = String::new();
    let read = io::stdin().lock().take(LONGEST).read_line(&mut line);
    read.map_err(|error| {
        exit!(
            USAGE,
            "no token can be read from stdin: {error} (exit {USAGE})"
        )
    })?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The time for which the lease is certain.
fn left(status: LeaseStatus) -> Duration {
    status.valid_until.since(Clock::system().now())
}

/// The exit for a lease that is no longer held.
fn gone(lost: &Lost) -> Exit {
    exit!(
        LOST,
        "you do not hold {} any more: {} (exit {LOST})\n    It has expired, was released, broken or undone by a failover, or the token is for another lock.\n    Work done since then may have been unprotected; stop it.",
        quoted(&lost.name),
        cause(lost)
    )
}

fn cause(lost: &Lost) -> String {
    match &lost.cause {
        LossCause::NotHeld(None) => "the lock is free".into(),
        other => other.to_string(),
    }
}

/// The exit for a lease that is not held, or for an unknown outcome.
fn failed(error: Error, what: &str) -> Exit {
    match error {
        Error::Lost(lost) => gone(&lost),
        error => unknown(error, what),
    }
}

/// The exit for an unknown outcome. `what` explains the consequence for the user.
fn unknown(error: Error, what: &str) -> Exit {
    match error {
        Error::Store(store) => {
            let code = Exit::from(Error::Store(store.clone())).code();
            exit!(code, "{store} (exit {code})\n    {what}")
        }
        other => other.into(),
    }
}

const RENEW_HELP: &str = "\
The time counts from now and replaces the rest of the lease. A lease that has ended is not taken again.
  leasehold renew --ttl 20m

Exit codes: 0 renewed; 79 the lease had ended; 64 wrong usage, or no lock or token; 69 the store does
not answer; 77 it refuses user, password or permission; 78 no store";

/// Extend a lease to --ttl from now, by its token
#[derive(Debug, Args)]
#[command(after_help = RENEW_HELP)]
pub(crate) struct Renew {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// How long the lease lasts from now, 10ms to 24h
    #[arg(long, value_name = "DUR", value_parser = ttl)]
    ttl: Duration,
}

/// Runs `leasehold renew`. An expired lease is never taken again.
pub(crate) fn renew(args: &Renew) -> Result<Exit, Exit> {
    with_lease(&args.store, &args.lease, async |_, lease| {
        let what =
            "The renewal is not confirmed: rely on the previous deadline only, and try again.";
        let renewed = lease.renew(args.ttl).await;
        renewed.map_err(|error| failed(error, what))?;
        Ok(Exit::quiet(0))
    })
}

const RELEASE_HELP: &str = "\
Frees the lock at once for the first in line:
  leasehold release              at the end of the work
  leasehold release --if-held    in a clean-up step

Exit codes: 0 released; 79 the lease had ended; 64 wrong usage, or no lock or token; 69 the store does
not answer: the TTL ends the lease at the latest; 77 it refuses user, password or permission; 78 no store";

/// Release a lock, by its token
#[derive(Debug, Args)]
#[command(after_help = RELEASE_HELP)]
pub(crate) struct Release {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// Exit 0 silently if the lease is no longer held: for a clean-up step that may run twice. By default that
    /// is exit 79, since the work may have been unprotected
    #[arg(long)]
    if_held: bool,
}

/// Runs `leasehold release`. A lease that had already ended is reported as lost.
pub(crate) fn release(args: &Release) -> Result<Exit, Exit> {
    with_lease(&args.store, &args.lease, async |_, lease| {
        match lease.release().await {
            Ok(()) => Ok(Exit::quiet(0)),
            Err(Error::Lost(_)) if args.if_held => Ok(Exit::quiet(0)),
            Err(error) => Err(failed(
                error,
                "The release is not confirmed: try again. At the latest the TTL ends the lease; until then other clients wait.",
            )),
        }
    })
}

const CHECK_HELP: &str = "\
Exit 0: you hold the lock for at least --min more. Exit 79: you do not. Exit 69: unknown, since the
store does not answer; continue only if the work is safe without the lock. Use it just before a step
that cannot be undone, with the time that the step takes:
  leasehold check --min 30s && ./publish

Other exit codes: 64 wrong usage, or no lock or token; 77 the store refuses user, password or permission;
78 no store";

/// Check whether the lease is still held: exit 0 if so, 79 if not
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct Check {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// Required rest of the lease (5s, 2h; a bare number is seconds)
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "0")]
    min: Duration,

    /// Print one JSON document (leasehold.check/1), for both answers
    #[arg(long)]
    json: bool,
}

/// Runs `leasehold check`. Both answers need the confirmation of the store.
pub(crate) fn check(args: &Check) -> Result<Exit, Exit> {
    with_lease(&args.store, &args.lease, async |lock, lease| {
        let (exit, status) = match lease.check().await {
            Ok(status) if left(status) > args.min => (Exit::quiet(0), Some(status)),
            Ok(status) => {
                let (name, left, min) = (quoted(lock), span(left(status)), span(args.min));
                let again = args.store.again_with(lock);
                let too_short = exit!(
                    LOST,
                    "you hold {name} for {left} more, which is not more than {min} (exit {LOST})\n    next    leasehold renew --ttl DUR {again}"
                );
                (too_short, Some(status))
            }
            Err(Error::Lost(lost)) => (gone(&lost), None),
            Err(error) => {
                return Err(unknown(
                    error,
                    "It is not known whether you hold the lock. Check again, or continue only if the work is safe without the lock.",
                ));
            }
        };
        if args.json {
            let checked = Checked {
                lock,
                ok: exit.code() == 0,
                held: status.is_some(),
                expires_in_ms: status.map_or(0, |status| millis(left(status))),
                min_ms: millis(args.min),
                fence: status.map(|status| status.fence.get()),
            };
            output::write(output::json(&checked).as_bytes()).map_err(|error| {
                exit!(
                    SOFTWARE,
                    "cannot write to stdout: {error} (exit {SOFTWARE})"
                )
            })?;
        }
        Ok(exit)
    })
}

const ACQUIRE_HELP: &str = "\
Waits in line until LOCK is free, takes it for --ttl, prints a token and ends. Nothing renews the lease
automatically. It ends after --ttl, unless a process on any host renews or releases it by its token:
  leasehold acquire deploy --ttl 20m --env >> \"$GITHUB_ENV\"
  leasehold renew --ttl 20m        before a long step
  leasehold check --min 2m         just before a step that cannot be undone
  leasehold release                at the end; exit 79 if it had expired before

To run one command under a lock, use `leasehold run`: it renews, and stops the command in time.
The token is not a password, but any process that has it can release the lock. In a shell, export it:
  set -a; eval \"$(leasehold acquire deploy --ttl 20m --env)\"; set +a

Exit codes: 0 taken; 75 busy (--try, --max-waiters); 124 the limit of --wait; 64 wrong usage, no --ttl
or an invalid name; 69 the store does not answer; 77 it refuses user, password or permission; 78 no store;
128+n ended by signal n";

/// Take a lock and leave it taken; print the token that renews and releases it
#[derive(Debug, Args)]
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct Acquire {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    how: WaitArgs,

    /// How long the lock stays taken, 10ms to 24h. Required: nothing renews it automatically, so it must outlast
    /// the work, or the work must renew it
    #[arg(long, value_name = "DUR", value_parser = ttl)]
    ttl: Option<Duration>,

    /// Print the token, lock and fence as variables (`LEASEHOLD_TOKEN=...`)
    #[arg(long, conflicts_with = "json")]
    env: bool,

    /// Print one JSON document (leasehold.acquire/1)
    #[arg(long)]
    json: bool,

    /// The lock
    #[arg(value_name = "LOCK")]
    lock: String,
}

/// Runs the verb.
pub(crate) fn acquire(args: &Acquire) -> Result<Exit, Exit> {
    LockName::new(&args.lock)?;
    let ttl = args.ttl.ok_or_else(|| {
        exit!(USAGE, "--ttl is required (exit {USAGE}): nothing renews the lease of `acquire`, so give the longest time that the work takes\n    next    leasehold acquire --ttl 20m LOCK, or `leasehold run`, which renews")
    })?;
    if stdout_is_closed() {
        return Err(exit!(
            USAGE,
            "stdout is closed, so the token cannot be printed; the lock was not taken (exit {USAGE})"
        ));
    }
    if args.env {
        let note = args.how.note.as_deref().unwrap_or_default();
        // A token encodes '#' and all characters that are not printable ASCII.
        let is_as_it_is = |c: &char| c.is_ascii_graphic() && *c != '#';
        let note: String = note.chars().filter(is_as_it_is).collect();
        for (what, text) in [("lock name", args.lock.as_str()), ("note", &note)] {
            plain(what, text)?;
        }
    }
    let target = args.store.target()?;
    let target = target.patient(args.how.limit()?, args.how.quiet);
    with_client(&target, async |client, signals| {
        take(client, args, ttl, signals).await
    })
}

async fn take(
    client: &Client,
    args: &Acquire,
    ttl: Duration,
    signals: &mut Signals,
) -> Result<Exit, Exit> {
    let terminal = Terminal::controlling();
    let lasting = humantime::format_duration(ttl).to_string().replace(' ', "");
    let verb = format!("acquire --ttl {lasting}");
    let wanted = LockRequest {
        name: &args.lock,
        kind: &KindArgs::default(),
        ttl,
        note: args.how.note.as_deref().unwrap_or("acquire"),
        how: &args.how,
        tells_manager: false,
        wants_holder: false,
        again: RetryHint {
            verb: &verb,
            store: &args.store.again(),
            command: "",
        },
    };
    let (mut known, terminal) = (WaitFacts::default(), terminal.as_ref());
    let lease = acquire_ui::for_lock(client, wanted, signals, terminal, &mut known).await?;
    let fence = lease.fence();
    if args.env {
        // The token contains the user and host names. On an error, dropping the lease releases the lock. The
        // fence needs no check: within a word, '#' begins no comment.
        plain("token", lease.owner().token())?;
    }
    let (detached, tenure) = lease.detach(ttl).await.map_err(|error| match error {
        Error::Lost(lost) => exit!(SOFTWARE, "{lost} (exit {SOFTWARE})"),
        error => unknown(
            error,
            &format!(
                "The lock was acquired but not confirmed, so it was released again. At the latest its TTL ends it within {}.",
                span(ttl)
            ),
        ),
    })?;
    let (token, lock) = (detached.token(), args.lock.as_str());
    let text = if args.json {
        output::json(&Acquired {
            lock,
            token,
            fence: fence.get(),
            ttl_ms: millis(ttl),
            waited_ms: millis(known.waited),
            expires_in_ms: millis(left(tenure)),
        })
    } else if args.env {
        format!("LEASEHOLD_LOCK={lock}\nLEASEHOLD_TOKEN={token}\nLEASEHOLD_FENCE={fence}\n")
    } else {
        format!("{token}\n")
    };
    let printed = tokio::select! {
        biased;
        signal = signals.next_ending() => {
            give_back(detached, ttl).await;
            return Err(Exit::by(signal));
        }
        printed = output::write_on_thread(text.into_bytes()) => printed,
    };
    if let Err(error) = printed {
        let what = give_back(detached, ttl).await;
        return Err(exit!(
            SOFTWARE,
            "the token cannot be written to stdout: {error} (exit {SOFTWARE})\n    {what}"
        ));
    }
    Ok(Exit::quiet(0))
}

/// Releases a lock whose token was not printed. Returns a message about the outcome.
async fn give_back(detached: Detached, ttl: Duration) -> String {
    match Released::within(RELEASE, detached.release()).await {
        Released::Yes | Released::WasLost(_) => "The lock was released again.".into(),
        Released::Unconfirmed(_) => format!(
            "The lock could not be released: its TTL ends it within {}.",
            span(ttl)
        ),
    }
}

/// Refuses text that a shell and a variables file (`$GITHUB_ENV`, `docker --env-file`) would read differently:
/// quotes that the shell needs are part of the value in the file.
fn plain(what: &str, text: &str) -> Result<(), Exit> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if text.chars().all(is_plain) {
        return Ok(());
    }
    Err(exit!(
        USAGE,
        "--env cannot print the {what} {}: a shell and a file of variables would read it differently; the lock was not kept (exit {USAGE})\n    next    use --json, or only letters, digits and - _ . / : @ % + = ,",
        quoted(text)
    ))
}

/// True if this process was started without a stdout. The Rust runtime then opens `/dev/null` for reading and
/// writing in its place; an intended `/dev/null` is opened for writing only.
fn stdout_is_closed() -> bool {
    let stdout = io::stdout();
    let flags = fcntl(stdout.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    let null = std::fs::metadata("/dev/null").map(|null| null.rdev()).ok();
    let device = fstat(stdout.as_fd()).ok().map(|stat| stat.st_rdev);
    flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
        && null.is_some()
        && null == device
}

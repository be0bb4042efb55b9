//! `leasehold acquire`: takes a lock, prints its token and ends. A lock whose token cannot be printed is
//! released.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use clap::Args;
use leasehold::{Client, Detached, Error};
use leasehold_core::LockName;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;
use serde::Serialize;
use tokio::sync::oneshot;

use super::lease::{left, unknown};
use crate::acquire_ui::{self, AcquiredLease, LockRequest, RetryHint, WaitArgs};
use crate::exit::{Exit, SOFTWARE, USAGE, exit};
use crate::messages::{quoted, span};
use crate::output;
use crate::session::with_client;
use crate::signals::Signals;
use crate::store::StoreArgs;
use crate::terminal::Terminal;
use crate::values::ttl;
use crate::view::millis;

/// The time limit for releasing a lock whose token was not printed.
const RELEASE: Duration = Duration::from_secs(3);

const ABOUT: &str = "\
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
#[command(after_help = ABOUT)]
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

/// The document of `--json`.
#[derive(Serialize)]
struct Acquired<'a> {
    schema: &'static str,
    lock: &'a str,
    token: &'a str,
    fence: u64,
    ttl_ms: u64,
    waited_ms: u64,
    expires_in_ms: u64,
}

/// Runs the verb.
pub(crate) fn acquire(args: &Acquire) -> Exit {
    begin(args).unwrap_or_else(|exit| exit)
}

fn begin(args: &Acquire) -> Result<Exit, Exit> {
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
    Ok(with_client(target, async |client, signals| {
        take(client, args, ttl, signals).await
    }))
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
        ttl,
        note: args.how.note.as_deref().unwrap_or("acquire"),
        how: &args.how,
        wants_holder: false,
        again: RetryHint {
            verb: &verb,
            lock: &args.store.again_with(&args.lock),
            command: "",
        },
    };
    let AcquiredLease { lease, waited } =
        acquire_ui::for_lock(client, wanted, signals, terminal.as_ref()).await?;
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
    let acquired = Acquired {
        schema: "leasehold.acquire/1",
        lock,
        token,
        fence: fence.get(),
        ttl_ms: millis(ttl),
        waited_ms: millis(waited),
        expires_in_ms: millis(left(tenure)),
    };
    let printed = tokio::select! {
        biased;
        signal = signals.next_ending() => {
            give_back(detached, ttl).await;
            return Err(Exit::by(signal));
        }
        printed = printed(acquired.shown(args)) => printed,
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

/// Writes to stdout on a thread, since the pipe may be full and signals must still be handled.
async fn printed(text: String) -> io::Result<()> {
    let (tell, told) = oneshot::channel();
    // After a signal the receiver is gone.
    let write = move || drop(tell.send(output::write(text.as_bytes())));
    thread::Builder::new().name("stdout".into()).spawn(write)?;
    told.await
        .unwrap_or_else(|_| Err(io::Error::other("not written")))
}

/// Releases a lock whose token was not printed. Returns a message about the outcome.
async fn give_back(detached: Detached, ttl: Duration) -> String {
    match tokio::time::timeout(RELEASE, detached.release()).await {
        Ok(Ok(()) | Err(Error::Lost(_))) => "The lock was released again.".into(),
        _ => format!(
            "The lock could not be released: its TTL ends it within {}.",
            span(ttl)
        ),
    }
}

impl Acquired<'_> {
    fn shown(&self, args: &Acquire) -> String {
        let Self {
            lock, token, fence, ..
        } = self;
        if args.json {
            // Strings and numbers can always be serialized.
            output::json(self).unwrap_or_default() + "\n"
        } else if args.env {
            format!("LEASEHOLD_LOCK={lock}\nLEASEHOLD_TOKEN={token}\nLEASEHOLD_FENCE={fence}\n")
        } else {
            format!("{token}\n")
        }
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
    let null = std::fs::metadata("/dev/null")
        .map(|null| std::os::unix::fs::MetadataExt::rdev(&null))
        .ok();
    let device = fstat(stdout.as_fd()).ok().map(|stat| stat.st_rdev);
    flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
        && null.is_some()
        && null == device
}

//! `leasehold run`, from what was typed to the exit code. Must never start the command without the lock, and never leave
//! the lock behind.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use leasehold::{Client, Error, Lease, LockName, Lost, Owner};
use nix::sys::signal::Signal;

use crate::args::Run;
use crate::child::{self, Child};
use crate::exit::{CONFIG, Exit, LOST, Reach, SOFTWARE};
use crate::program::Program;
use crate::signals::Signals;
use crate::supervise::{Verdict, Watch};
use crate::terminal::Terminal;
use crate::text::{quoted, say, span};
use crate::wait::{self, Got};

/// How long to wait for the store to confirm a release. The TTL ends the lease without it.
const RELEASE: Duration = Duration::from_secs(3);

/// How long to wait for the client to clean up. What is left is ended by its TTL.
const CLOSE: Duration = Duration::from_secs(1);

const NO_STORE: &str = "no store given: where does the lock live? (exit 78)
    this host only    leasehold run --url local: LOCK -- CMD
    your Redis        export LEASEHOLD_URL=redis://host:6379/";

/// Does it.
pub(crate) fn run(args: &Run) -> Exit {
    begin(args).unwrap_or_else(|exit| exit)
}

/// All that can be refused without touching the lock.
fn begin(args: &Run) -> Result<Exit, Exit> {
    LockName::new(args.lock()?)?;
    let command = args.command()?;
    let url = url(args)?;
    let program = Program::find(command)?;
    // The command is started from this thread, which lives as long as the process (see `sys::prepare`).
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refused_by_system(&error))?;
    runtime.block_on(connected(args, url, &program))
}

/// With a connection, which is closed whatever happens.
async fn connected(args: &Run, url: &str, program: &Program) -> Result<Exit, Exit> {
    let mut signals = Signals::catch().map_err(|error| refused_by_system(&error))?;
    let mut builder = Client::builder();
    if let Some(namespace) = &args.namespace {
        builder = builder.namespace(namespace);
    }
    let client = tokio::select! {
        biased;
        signal = signals.next_ending() => return Err(Exit::by(signal)),
        client = builder.connect(url) => client?,
    };
    let exit = locked(&client, args, program, &mut signals).await;
    // Out of time means that the store does not answer, which has been said or does not matter any more.
    let _closed: Result<(), tokio::time::error::Elapsed> =
        tokio::time::timeout(CLOSE, client.close()).await;
    exit
}

/// With the lock.
async fn locked(
    client: &Client,
    args: &Run,
    program: &Program,
    signals: &mut Signals,
) -> Result<Exit, Exit> {
    let terminal = Terminal::controlling();
    let note = args
        .note
        .clone()
        .unwrap_or_else(|| program.note(Owner::MAX_META_BYTES));
    let Got { lease, waited } =
        wait::for_lock(client, args, &note, signals, terminal.as_ref()).await?;
    signals
        .catch_stop()
        .map_err(|error| refused_by_system(&error))?;

    let environment = environment(&lease, args.ttl, waited);
    let mut child = Child::start(program, &environment, terminal.as_ref())
        .map_err(|error| program.failed(&error))?;
    let verdict = Watch::new(&mut child, &lease, terminal.as_ref(), args.ttl)
        .until_end(signals)
        .await;
    let reach = reclaim(terminal.as_ref(), &child, &verdict);
    let exit = judge(lease, verdict, args.ttl).await;
    Ok(match reach {
        Some(reach) => exit.by_interrupt(reach),
        None => exit,
    })
}

/// What the command is told.
fn environment(lease: &Lease, ttl: Duration, waited: Duration) -> [(&'static str, String); 5] {
    [
        ("LEASEHOLD_LOCK", lease.name().to_owned()),
        ("LEASEHOLD_FENCE", lease.fence().to_string()),
        ("LEASEHOLD_HOLDER", lease.owner().to_string()),
        ("LEASEHOLD_TTL_MS", ttl.as_millis().to_string()),
        ("LEASEHOLD_WAITED_MS", waited.as_millis().to_string()),
    ]
}

/// Takes the terminal back, as it was. Says whom an interrupt that ended the command has yet to reach: a script that
/// runs us is to stop as well.
fn reclaim(terminal: Option<&Terminal>, child: &Child, verdict: &Verdict) -> Option<Reach> {
    let terminal = terminal?;
    let had_it = terminal.take_from(child.group());
    let signal = match verdict {
        Verdict::Ended(status) => status.signal(),
        _ => Some(Signal::SIGKILL as i32),
    }?;
    terminal.restore();
    let interrupted = signal == Signal::SIGINT as i32 && terminal.is_ours();
    interrupted.then_some(if had_it { Reach::Group } else { Reach::Us })
}

/// Releases the lock, and says how it all ended.
async fn judge(lease: Lease, verdict: Verdict, ttl: Duration) -> Exit {
    let what = format!(
        "the lease on {} (fence {})",
        quoted(lease.name()),
        lease.fence()
    );
    let (cause, how) = match (verdict, release(lease).await) {
        (Verdict::Ended(status), Released::Yes) => return Exit::quiet(child::code(status)),
        (Verdict::Ended(status), Released::Unconfirmed(why)) => {
            say(&format!(
                "{what} may not have been released: {why}\n    it ends by itself within {}; until then others wait",
                span(ttl)
            ));
            return Exit::quiet(child::code(status));
        }
        (Verdict::Ended(_), Released::WasLost(lost)) | (Verdict::TooLate(lost), _) => {
            (lost.cause.to_string(), "the command ended after that")
        }
        (Verdict::Stopped(cause), released) => (why(cause, released), "the command was stopped"),
        (Verdict::Undead(cause), released) => (
            why(cause, released),
            "the command was killed but does not die, and MAY STILL BE RUNNING",
        ),
    };
    Exit::saying(
        LOST,
        format!(
            "{what} was lost: {cause}\n    {how} (exit {LOST}); work done without the lease may have been unprotected"
        ),
    )
}

/// What came of giving the lock back.
enum Released {
    Yes,
    WasLost(Lost),
    Unconfirmed(String),
}

async fn release(lease: Lease) -> Released {
    match tokio::time::timeout(RELEASE, lease.release()).await {
        Ok(Ok(())) => Released::Yes,
        Ok(Err(Error::Lost(lost))) => Released::WasLost(lost),
        Ok(Err(error)) => Released::Unconfirmed(error.to_string()),
        Err(_) => Released::Unconfirmed("the store does not answer".into()),
    }
}

/// Why a command was stopped: what was known then, or what the release has shown.
fn why(cause: Option<Lost>, released: Released) -> String {
    match (cause, released) {
        (Some(lost), _) | (None, Released::WasLost(lost)) => lost.cause.to_string(),
        (None, Released::Unconfirmed(why)) => format!("it could not be renewed in time: {why}"),
        (None, Released::Yes) => "it could not be renewed in time".into(),
    }
}

fn url(args: &Run) -> Result<&str, Exit> {
    match args.url.as_deref() {
        // A variable that is set to nothing is as good as none.
        None | Some("") => Err(Exit::saying(CONFIG, NO_STORE)),
        Some("memory:") => Err(Exit::saying(
            CONFIG,
            format!(
                "memory: is seen by one process only, so it would exclude nobody (exit {CONFIG})\n    next    leasehold run --url local: LOCK -- CMD"
            ),
        )),
        Some(url) => Ok(url),
    }
}

fn refused_by_system(error: &io::Error) -> Exit {
    Exit::saying(
        SOFTWARE,
        format!("the system refused: {error} (exit {SOFTWARE})"),
    )
}

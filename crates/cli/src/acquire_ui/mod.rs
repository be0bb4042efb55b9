//! Waiting for a lock with progress messages, signals and error texts.

mod args;
mod busy;
mod progress;

use std::env;
use std::io;
use std::time::Duration;

use leasehold::{Client, Clock, Error, HolderIdentity, HolderView, Lease, Snapshot, WaitStatus};
use nix::sys::signal::Signal;
use tokio::sync::watch;

use self::args::ProgressMode;
pub(crate) use self::args::{LockRequest, RetryHint, WaitArgs, counts_from, with_connect_note};
use self::progress::{Progress, ProgressStyle, WaitState};
use crate::exit::{BUSY, Exit, InterruptTarget, TIMEOUT, UNAVAILABLE, USAGE, exit};
use crate::messages::{can_rewrite, quoted, span, write_raw};
use crate::signals::Signals;
use crate::sys;
use crate::terminal::Terminal;
use crate::verbose;
use crate::view::{fence_of, who};

/// The interval at which the progress line is updated.
const TICK: Duration = Duration::from_secs(1);

/// The time limit for asking the store who holds a busy lock.
const INSPECTION: Duration = Duration::from_secs(2);

/// The variable with the tokens of all outer runs, the outermost first.
pub(crate) const CHAIN: &str = "LEASEHOLD_CHAIN";

/// A lease, with the time it took to acquire it.
pub(crate) struct AcquiredLease {
    pub(crate) lease: Lease,
    pub(crate) waited: Duration,
}

/// The exit without a lease, and what is known of the wait.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub(crate) exit: Exit,
    pub(crate) waited: Duration,
    /// The holder of the lock in the last answer of the store.
    pub(crate) holder: Option<HolderView>,
}

impl From<Exit> for Refused {
    fn from(exit: Exit) -> Self {
        Self {
            exit,
            ..Self::default()
        }
    }
}

impl From<Refused> for Exit {
    fn from(refused: Refused) -> Self {
        refused.exit
    }
}

/// Waits for the lock. The caller closes the client afterwards in all cases, which removes the place in the
/// queue.
pub(crate) async fn for_lock(
    client: &Client,
    request: LockRequest<'_>,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<AcquiredLease, Refused> {
    let LockRequest {
        name,
        ttl,
        note,
        how,
        ..
    } = request;
    let limit = how.limit()?;
    let (clock, answers) = (Clock::system(), watch::Sender::new(None));
    let begun = clock.now();
    let mut seen = answers.subscribe();
    let last = seen.clone();
    let without = |exit| {
        let last: Option<WaitStatus> = last.borrow().clone();
        Refused {
            exit,
            waited: clock.now().since(begun),
            holder: last.map(|last| last.holder),
        }
    };
    let lock = client
        .mutex(name)
        .ttl(ttl)
        .note(note)
        .on_wait(move |waiting| drop(answers.send_replace(Some(waiting.clone()))));
    let mut progress = Progress::new(style(how, terminal), name, limit);

    let asking = async {
        let lease = match limit {
            _ if how.once => lock.try_acquire().await?,
            Some(limit) => Some(lock.acquire_within(limit).await?),
            None => Some(lock.acquire().await?),
        };
        if let Some(lease) = &lease {
            extend_to_ttl(lease, ttl).await?;
        }
        Ok::<_, Error>(lease)
    };
    tokio::pin!(asking);
    // `--max-waiters` counts only at the entry: in a fair queue later waiters come behind.
    let mut in_line = false;
    let answer = loop {
        tokio::select! {
            // Signals have priority: a lock that arrives together with one must not be used.
            biased;
            signal = signals.next_ending() => {
                write_raw(progress.end());
                return Err(without(interrupted(signal, terminal)));
            }
            answer = &mut asking => break answer.map_err(NotAcquired::Store),
            Ok(()) = seen.changed() => {
                let Some(WaitStatus { holder, ahead, .. }) = seen.borrow_and_update().clone() else { continue };
                if is_ancestor(&holder) {
                    write_raw(progress.end());
                    return Err(without(nested(name, &holder)));
                }
                if !in_line && how.is_full(ahead) {
                    break Err(NotAcquired::Full(ahead));
                }
                in_line = true;
                progress.resize(sys::columns(io::stderr()));
                tell(progress.see(WaitState { holder, ahead, at: clock.now().since(begun) }));
            }
            () = tokio::time::sleep(TICK) => {
                progress.resize(sys::columns(io::stderr()));
                tell(progress.tick(clock.now().since(begun)));
            }
        }
    };

    let waited = clock.now().since(begun);
    let lease = match answer {
        Ok(Some(lease)) => lease,
        other => {
            write_raw(progress.end());
            let known = without(Exit::default());
            return Err(refused(client, request, other.map(drop), known).await);
        }
    };
    tell(progress.got(waited, lease.fence()));
    // Dropping the lease releases the lock: after a signal the command must not start.
    match signals.arrived().await {
        Some(signal) => Err(without(interrupted(signal, terminal))),
        None => Ok(AcquiredLease { lease, waited }),
    }
}

/// Extends the short first lease of a waiter to the full TTL, so that the command starts with enough time. If
/// the store does not answer, the renewals try again.
async fn extend_to_ttl(lease: &Lease, ttl: Duration) -> Result<(), Error> {
    if lease.valid_for() > ttl / 2 {
        return Ok(());
    }
    match lease.extend(ttl).await {
        Ok(()) | Err(Error::Store(_)) => Ok(()),
        Err(lost) => Err(lost),
    }
}

/// The current state of the lock, or an exit that says that the store does not answer. A waiter far back in the
/// queue seldom asks the store, and a silent store must not look like a busy lock.
pub(crate) async fn inspect_or_unavailable(client: &Client, name: &str) -> Result<Snapshot, Exit> {
    match tokio::time::timeout(INSPECTION, client.inspect(name)).await {
        Ok(Ok(snapshot)) => Ok(snapshot),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(exit!(
            UNAVAILABLE,
            "the store does not answer any more (exit {UNAVAILABLE})\n    {} was busy at its last answer; now it may be free or held. The command was not run.\n    next    check that the server runs and that this host may reach it",
            quoted(name)
        )),
    }
}

/// The reason why the lock was not acquired, other than busy.
enum NotAcquired {
    Store(Error),
    /// The number of waiters exceeds `--max-waiters`.
    Full(u32),
}

/// Completes what is known of a wait without a lease.
async fn refused(
    client: &Client,
    request: LockRequest<'_>,
    answer: Result<(), NotAcquired>,
    mut known: Refused,
) -> Refused {
    let name = request.name;
    let before = match &answer {
        Err(NotAcquired::Full(ahead)) => usize::try_from(*ahead).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let (code, outcome, retry, holder) = match answer {
        Ok(()) => (BUSY, format!("is busy (exit {BUSY})"), "-w 5m ", None),
        Err(NotAcquired::Full(ahead)) => (
            BUSY,
            format!(
                "is busy, and {ahead} {} already (exit {BUSY})",
                if ahead == 1 { "waits" } else { "wait" }
            ),
            "",
            None,
        ),
        Err(NotAcquired::Store(Error::Timeout(timeout))) => (
            TIMEOUT,
            format!(
                "is still busy after {} (exit {TIMEOUT})",
                span(timeout.waited)
            ),
            "",
            timeout.holder.map(|holder| *holder),
        ),
        Err(NotAcquired::Store(error)) => {
            known.exit = error.into();
            return known;
        }
    };
    known.holder = holder.or(known.holder);
    // A lock of an outer run is reported even with `--quiet`: it would never become free.
    let is_nested = env::var_os(CHAIN).is_some();
    if request.how.quiet && !is_nested && code != TIMEOUT && !request.wants_holder {
        known.exit = Exit::quiet(code);
        return known;
    }
    let mut snapshot = match inspect_or_unavailable(client, name).await {
        Ok(snapshot) => snapshot,
        Err(exit) if code == TIMEOUT => {
            known.exit = exit;
            return known;
        }
        // The store answered a moment ago: use its last answer.
        Err(_) => Snapshot::new(known.holder.clone(), Vec::new()),
    };
    // The queue may still contain this client, behind the counted waiters.
    snapshot.queue.truncate(before);
    known.exit = match &snapshot.holder {
        Some(holder) if is_ancestor(holder) => nested(name, holder),
        _ if request.how.quiet => Exit::quiet(code),
        _ => Exit::saying(
            code,
            busy::busy(name, &outcome, &snapshot, retry, request.again),
        ),
    };
    // A holder that has gone meanwhile was still the reason.
    known.holder = snapshot.holder.or(known.holder);
    known
}

/// The exit after a signal ended the wait.
pub(crate) fn interrupted(signal: Signal, terminal: Option<&Terminal>) -> Exit {
    let exit = Exit::by(signal);
    // A signal from the terminal reached the whole process group, and the shell of a script checks whether this
    // process dies of it.
    let by_hand = signal == Signal::SIGINT && terminal.is_some_and(Terminal::is_foreground);
    if by_hand {
        exit.by_interrupt(InterruptTarget::Process)
    } else {
        exit
    }
}

/// True if the holder is an outer `leasehold run`, which cannot end before this process, or the lease whose
/// token this process was given.
pub(crate) fn is_ancestor(holder: &HolderView) -> bool {
    let HolderIdentity::Owner(owner) = &holder.who else {
        return false;
    };
    let token = owner.token();
    env::var(CHAIN).is_ok_and(|chain| chain.split(' ').any(|link| link == token))
        || env::var("LEASEHOLD_TOKEN").is_ok_and(|given| given.split('#').next() == Some(token))
}

pub(crate) fn nested(name: &str, holder: &HolderView) -> Exit {
    exit!(
        USAGE,
        "{} is held by an outer `leasehold run`, or by the lease of the given token ({}{}): you already hold this lock, so waiting for it would never end (exit {USAGE})",
        quoted(name),
        who(holder),
        fence_of(holder)
    )
}

fn style(how: &WaitArgs, terminal: Option<&Terminal>) -> ProgressStyle {
    let is_live =
        can_rewrite() && !verbose::is_on() && terminal.is_some_and(Terminal::is_foreground);
    match how.progress {
        _ if how.quiet => ProgressStyle::Quiet,
        ProgressMode::None => ProgressStyle::Quiet,
        ProgressMode::Auto if is_live => ProgressStyle::Live,
        ProgressMode::Auto | ProgressMode::Plain => ProgressStyle::Lines,
    }
}

fn tell(text: Option<String>) {
    if let Some(text) = text {
        write_raw(&text);
    }
}

//! The time in line. Must never end with a lease that the command does not get, and never leave a place in line behind.

use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;

use leasehold::{Client, Clock, Error, HolderView, Lease, Snapshot, Waiting};
use nix::sys::signal::Signal;
use tokio::sync::watch;

use crate::args::Run;
use crate::exit::{BUSY, Exit, Reach, TIMEOUT, USAGE};
use crate::progress::{self, Progress, Seen, Style};
use crate::signals::Signals;
use crate::sys;
use crate::terminal::Terminal;
use crate::text::{quoted, span, who, write_raw};

/// How often a line that is shown is looked at.
const TICK: Duration = Duration::from_secs(1);

/// How long to ask for the holder of a busy lock, to name it.
const INSPECTION: Duration = Duration::from_secs(1);

/// A lease, and how long it took to get it.
pub(crate) struct Got {
    pub(crate) lease: Lease,
    pub(crate) waited: Duration,
}

/// Waits for the lock as `args` say. The caller closes the client, whatever comes of it, which leaves the line for good.
pub(crate) async fn for_lock(
    client: &Client,
    args: &Run,
    note: &str,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<Got, Exit> {
    let name = args.lock()?;
    let (clock, answers) = (Clock::system(), watch::Sender::new(None));
    let begun = clock.now();
    let mut seen = answers.subscribe();
    let lock = client
        .mutex(name)
        .ttl(args.ttl)
        .note(note)
        .on_wait(move |waiting| drop(answers.send_replace(Some(waiting.clone()))));
    let mut progress = Progress::new(style(args, terminal), name, args.wait);

    let asking = async {
        let lease = match args.wait {
            _ if args.once => lock.try_acquire().await?,
            Some(limit) => Some(lock.acquire_within(limit).await?),
            None => Some(lock.acquire().await?),
        };
        if let Some(lease) = &lease {
            in_full(lease, args.ttl).await?;
        }
        Ok::<_, Error>(lease)
    };
    tokio::pin!(asking);
    let answer = loop {
        tokio::select! {
            // A signal first: a lock that arrives together with it is not to be used.
            biased;
            signal = signals.next_ending() => {
                write_raw(progress.end());
                return Err(interrupted(signal, terminal));
            }
            answer = &mut asking => break answer,
            Ok(()) = seen.changed() => {
                let Some(Waiting { holder, ahead, .. }) = seen.borrow_and_update().clone() else { continue };
                if is_ancestor(name, &holder) {
                    write_raw(progress.end());
                    return Err(nested(name, &holder));
                }
                progress.resize(sys::columns(io::stderr()));
                tell(progress.see(Seen { holder, ahead, at: clock.now().since(begun) }));
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
            return Err(refused(client, args, other.map(drop)).await);
        }
    };
    tell(progress.got(waited, lease.fence()));
    // Dropping the lease gives the lock back: what was asked to end must not begin.
    match signals.arrived().await {
        Some(signal) => Err(interrupted(signal, terminal)),
        None => Ok(Got { lease, waited }),
    }
}

/// Makes a lease that was waited for last as long as any other: it begins with a short one, and the command is to begin
/// with time to spare. What the store does not answer now is tried again while the command runs.
async fn in_full(lease: &Lease, ttl: Duration) -> Result<(), Error> {
    if lease.valid_for() > ttl / 2 {
        return Ok(());
    }
    match lease.extend(ttl).await {
        Ok(()) | Err(Error::Store(_)) => Ok(()),
        Err(lost) => Err(lost),
    }
}

/// Why there is no lease.
async fn refused(client: &Client, args: &Run, answer: Result<(), Error>) -> Exit {
    let name = match args.lock() {
        Ok(name) => name,
        Err(exit) => return exit,
    };
    let (code, outcome, retry, holder) = match answer {
        Ok(()) => (BUSY, format!("is busy (exit {BUSY})"), "-w 5m ", None),
        Err(Error::Timeout(timeout)) => (
            TIMEOUT,
            format!(
                "is still busy after {} (exit {TIMEOUT})",
                span(timeout.waited)
            ),
            "",
            timeout.holder.map(|holder| *holder),
        ),
        Err(error) => return error.into(),
    };
    if args.quiet {
        return Exit::quiet(code);
    }
    let snapshot = match tokio::time::timeout(INSPECTION, client.inspect(name)).await {
        Ok(Ok(snapshot)) => snapshot,
        // It answered before and does not any more: say what is known.
        _ => Snapshot {
            holder,
            queue: Vec::new(),
            fence: None,
        },
    };
    Exit::saying(code, progress::busy(name, &outcome, &snapshot, retry))
}

fn interrupted(signal: Signal, terminal: Option<&Terminal>) -> Exit {
    let exit = Exit::by(signal);
    // From the terminal it has reached all of our group, and the shell of a script waits to see whether we die of it.
    let by_hand = signal == Signal::SIGINT && terminal.is_some_and(Terminal::is_ours);
    if by_hand {
        exit.by_interrupt(Reach::Us)
    } else {
        exit
    }
}

/// Whether the holder is the `leasehold run` that this process runs under, which cannot end before it.
fn is_ancestor(name: &str, holder: &HolderView) -> bool {
    let is = |variable: &str, value: String| env::var(variable).is_ok_and(|set| set == value);
    is("LEASEHOLD_LOCK", name.to_owned())
        && is("LEASEHOLD_HOLDER", who(holder))
        && holder
            .fence
            .is_some_and(|fence| is("LEASEHOLD_FENCE", fence.to_string()))
}

fn nested(name: &str, holder: &HolderView) -> Exit {
    let fence = holder
        .fence
        .map(|fence| format!(", fence {fence}"))
        .unwrap_or_default();
    Exit::saying(
        USAGE,
        format!(
            "{} is held by the command that started this one ({}{fence}), and would be waited for in vain (exit {USAGE})",
            quoted(name),
            who(holder)
        ),
    )
}

fn style(args: &Run, terminal: Option<&Terminal>) -> Style {
    let can_rewrite =
        io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb");
    match (
        args.quiet,
        can_rewrite && terminal.is_some_and(Terminal::is_ours),
    ) {
        (true, _) => Style::Quiet,
        (false, true) => Style::Live,
        (false, false) => Style::Lines,
    }
}

fn tell(text: Option<String>) {
    if let Some(text) = text {
        write_raw(&text);
    }
}

//! `leasehold wait`: waits until a lock is free, without taking it and without joining the queue.

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error, HolderView, Moment, Snapshot};
use leasehold_core::LockName;
use serde::Serialize;

use crate::acquire_ui::{counts_from, interrupted, with_connect_note};
use crate::exit::{Exit, TIMEOUT};
use crate::messages::{quoted, say, span};
use crate::output;
use crate::session::with_client;
use crate::signals::Signals;
use crate::store::StoreArgs;
use crate::terminal::Terminal;
use crate::values::duration;
use crate::view::{LockJson, fence_of, is_free, is_same_lease, millis, who};

/// The minimal and the maximal time between two requests.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(1);

/// An unchanged line is repeated at this interval, as a sign of life.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit for a silent store, the same as for waiters in the queue.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

const WAIT_HELP: &str =
    "Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124";

/// Wait until a lock is free, without taking it
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Wait {
    #[command(flatten)]
    store: StoreArgs,

    /// The lock
    #[arg(value_name = "LOCK")]
    name: String,

    /// Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124
    #[arg(id = "wait", short = 'w', long = "wait", value_name = "DUR", value_parser = duration, help = WAIT_HELP, long_help = with_connect_note(WAIT_HELP))]
    limit: Option<Duration>,

    /// Print only errors, nothing about waiting
    #[arg(short, long)]
    quiet: bool,

    /// Print one JSON document at the end (leasehold.wait/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
Does not join the queue. Polls the lock each second, and sooner (after 250 ms at least) when the
lease is about to end. So it may miss a lock that is free for less than a second. A lock that passes
from one waiter to the next is not free in between. When this command ends, the lock may be taken again:
to run something under the lock, use `leasehold run`.
  leasehold wait -w 10m db-migrate

Exit codes: 0 the lock was free; 124 the limit of --wait; 64 wrong usage or an invalid name; 69 the
store does not answer (at the limit; without one at once if it never did, else after 30s); 77 it refuses user, password or
permission; 78 no store, or a key beside the lock has another type; 128+n ended by signal n";

#[derive(Serialize)]
struct WaitReport<'a> {
    schema: &'static str,
    store: &'a str,
    outcome: &'static str,
    waited_ms: u64,
    lock: LockJson<'a>,
}

/// Runs the verb.
pub(crate) fn wait(args: &Wait) -> Exit {
    begin(args).unwrap_or_else(|exit| exit).without_command()
}

fn begin(args: &Wait) -> Result<Exit, Exit> {
    LockName::new(&args.name)?;
    let target = args.store.target()?.patient(args.limit, args.quiet);
    let begun = Clock::system().now();
    Ok(with_client(target, async |client, signals| {
        poll_until_free(client, args, begun, signals).await
    }))
}

async fn poll_until_free(
    client: &Client,
    args: &Wait,
    begun: Moment,
    signals: &mut Signals,
) -> Result<Exit, Exit> {
    let clock = Clock::system();
    let mut answered = clock.now();
    let begun = counts_from(begun, answered);
    let mut told = Announcements::default();
    loop {
        let look = async {
            let outcome = client.inspect(&args.name).await;
            (outcome, clock.now())
        };
        let (outcome, now) = tokio::select! {
            biased;
            signal = signals.next_ending() => return Err(ended_by(signal)),
            looked = look => looked,
        };
        let waited = now.since(begun);
        let is_over = args.limit.is_some_and(|limit| waited >= limit);
        let pause = match outcome {
            Ok(snapshot) if is_free(&snapshot) => {
                told.end(args, waited);
                return report(client, args, "free", waited, &snapshot).map(|()| Exit::quiet(0));
            }
            Ok(snapshot) if is_over => {
                report(client, args, "timeout", waited, &snapshot)?;
                return Ok(told.timed_out(args, waited, &snapshot));
            }
            Ok(snapshot) => {
                answered = now;
                told.busy(args, &snapshot, now);
                pause(&snapshot)
            }
            Err(error) if is_passing(&error) && now.since(answered) < SILENCE_LIMIT && !is_over => {
                told.silent(args, &error);
                LATEST
            }
            Err(error) => return Err(error.into()),
        };
        let left = args
            .limit
            .map_or(pause, |limit| limit.saturating_sub(waited));
        tokio::select! {
            biased;
            signal = signals.next_ending() => return Err(ended_by(signal)),
            () = tokio::time::sleep(pause.min(left)) => {}
        }
    }
}

fn ended_by(signal: nix::sys::signal::Signal) -> Exit {
    interrupted(signal, Terminal::controlling().as_ref())
}

/// True if a retry may succeed.
pub(crate) fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.kind.is_transient())
}

/// The time until the next request: at the end of the lease, within limits.
fn pause(snapshot: &Snapshot) -> Duration {
    let left = snapshot
        .holder
        .as_ref()
        .map_or(Some(Duration::ZERO), |holder| holder.expires_in);
    // A lease is valid through its last millisecond.
    let past = left.map(|left| left.saturating_add(Duration::from_millis(1)));
    past.unwrap_or(LATEST).clamp(SOONEST, LATEST)
}

fn report(
    client: &Client,
    args: &Wait,
    outcome: &'static str,
    waited: Duration,
    snapshot: &Snapshot,
) -> Result<(), Exit> {
    if !args.json {
        return Ok(());
    }
    output::print_json_answer(&WaitReport {
        schema: "leasehold.wait/1",
        store: client.store(),
        outcome,
        waited_ms: millis(waited),
        lock: LockJson::of(&args.name, snapshot),
    })
}

/// The messages so far.
#[derive(Default)]
struct Announcements {
    /// The holder, the number of waiters and the time of the last message.
    last: Option<(Option<HolderView>, usize, Moment)>,
    is_silent: bool,
}

impl Announcements {
    fn busy(&mut self, args: &Wait, snapshot: &Snapshot, now: Moment) {
        let (holder, queue) = (&snapshot.holder, snapshot.queue.len());
        let is_new = match &self.last {
            Some((before, waiting, when)) => {
                let is_same = match (before, holder) {
                    (Some(before), Some(holder)) => is_same_lease(before, holder),
                    (None, None) => true,
                    _ => false,
                };
                !is_same || *waiting != queue || now.since(*when) >= REPEAT_INTERVAL
            }
            None => true,
        };
        if (is_new || self.is_silent) && !args.quiet {
            say(&format!(
                "waiting until {} is free: {}, {queue} in line",
                quoted(&args.name),
                held_by(holder.as_ref())
            ));
            self.last = Some((holder.clone(), queue, now));
        }
        self.is_silent = false;
    }

    fn silent(&mut self, args: &Wait, error: &Error) {
        if !self.is_silent && !args.quiet {
            say(&format!("{error}; still trying"));
        }
        self.is_silent = true;
    }

    fn end(&self, args: &Wait, waited: Duration) {
        if self.last.is_some() && !args.quiet {
            say(&format!(
                "{} is free after {:.1}s",
                quoted(&args.name),
                waited.as_secs_f64()
            ));
        }
    }

    #[allow(clippy::unused_self, reason = "reads as what is told")]
    fn timed_out(&self, args: &Wait, waited: Duration, snapshot: &Snapshot) -> Exit {
        if args.quiet {
            return Exit::quiet(TIMEOUT);
        }
        Exit::saying(
            TIMEOUT,
            format!(
                "{} is not free after {} (exit {TIMEOUT}): {}, {} in line",
                quoted(&args.name),
                span(waited),
                held_by(snapshot.holder.as_ref()),
                snapshot.queue.len()
            ),
        )
    }
}

/// The holder and the rest of its lease, as text.
fn held_by(holder: Option<&HolderView>) -> String {
    let Some(holder) = holder else {
        return "being granted to the first in line".into();
    };
    let held = holder
        .held_for
        .map(|held| format!(" {}", span(held)))
        .unwrap_or_default();
    let end = match holder.expires_in {
        Some(left) => format!("{} left unless renewed", span(left)),
        None => "which never expires".into(),
    };
    format!("held{held} by {}{}, {end}", who(holder), fence_of(holder))
}

#[cfg(test)]
mod tests {
    use crate::view::samples::{foreign, free, held, with_queue};

    use super::*;

    #[test]
    fn the_next_look_is_when_the_lease_ends_within_limits() {
        let with_left = |millis| {
            let mut snapshot = held(41);
            if let Some(holder) = &mut snapshot.holder {
                holder.expires_in = Some(Duration::from_millis(millis));
            }
            pause(&snapshot).as_millis()
        };
        assert_eq!([0, 100, 400, 5_000].map(with_left), [250, 250, 401, 1_000]);
        assert_eq!(pause(&foreign("hash", b"")), LATEST);
        assert_eq!(pause(&with_queue(free(), &[5])), SOONEST);
    }
}

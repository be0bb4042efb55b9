//! `leasehold wait`: waits until a lock is free, without taking it and without joining the queue.

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error, HolderView, Moment, Snapshot};
use leasehold_core::LockName;
use serde::Serialize;

use crate::acquire_ui::{counts_from, with_connect_note};
use crate::config::duration;
use crate::exit::{Exit, TIMEOUT, exit};
use crate::look::{PollTime, Polled, poll};
use crate::messages::{quoted, say, span};
use crate::output;
use crate::session::with_client;
use crate::store::StoreArgs;
use crate::view::{LockJson, fence_of, is_free, is_same_lease, millis, who};

/// The minimal and the maximal time between two requests.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(1);

/// An unchanged line is repeated at this interval, as a sign of life.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// The longest outage of the store, as for waiters in the queue.
const OUTAGE_LIMIT: Duration = Duration::from_secs(30);

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
#[serde(tag = "schema", rename = "leasehold.wait/1")]
struct WaitReport<'a> {
    store: &'a str,
    outcome: &'static str,
    waited_ms: u64,
    lock: LockJson<'a>,
}

/// Runs the verb.
pub(crate) fn wait(args: &Wait) -> Result<Exit, Exit> {
    LockName::new(&args.name)?;
    let target = args.store.target()?.patient(args.limit, args.quiet);
    let clock = Clock::system();
    let begun = clock.now();
    with_client(&target, async |client, signals| {
        let begun = counts_from(begun, clock.now());
        let until = args.limit.map(|limit| begun.after(limit));
        let wait = FreeWait {
            client,
            args,
            begun,
            told: None,
        };
        poll(wait, until, (OUTAGE_LIMIT, LATEST), signals).await
    })
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

/// A wait until one lock is free.
struct FreeWait<'a> {
    client: &'a Client,
    args: &'a Wait,
    begun: Moment,
    /// The state of the lock in the last message, and its time.
    told: Option<(Snapshot, Moment)>,
}

impl Polled<Snapshot> for FreeWait<'_> {
    async fn ask(&self) -> Result<Snapshot, Error> {
        self.client.inspect(&self.args.name).await
    }

    fn hear(&mut self, snapshot: Snapshot, at: PollTime) -> Result<Duration, Exit> {
        let (waited, name) = (at.now.since(self.begun), quoted(&self.args.name));
        let (held, queue) = (held_by(snapshot.holder.as_ref()), snapshot.queue.len());
        if is_free(&snapshot) {
            if self.told.is_some() {
                let waited = waited.as_secs_f64();
                say(&format!("{name} is free after {waited:.1}s"));
            }
            self.report("free", waited, &snapshot)?;
            return Err(Exit::quiet(0));
        }
        if at.is_over {
            self.report("timeout", waited, &snapshot)?;
            let waited = span(waited);
            let exit = exit!(
                TIMEOUT,
                "{name} is not free after {waited} (exit {TIMEOUT}): {held}, {queue} in line"
            );
            return Err(exit.quiet_if(self.args.quiet));
        }
        let pause = pause(&snapshot);
        if !self.args.quiet && (at.after_outage || self.is_news(&snapshot, at.now)) {
            say(&format!(
                "waiting until {name} is free: {held}, {queue} in line"
            ));
            self.told = Some((snapshot, at.now));
        }
        Ok(pause)
    }

    fn miss(&mut self, error: &Error) -> Result<(), Exit> {
        if !self.args.quiet {
            say(&format!("{error}; still trying"));
        }
        Ok(())
    }
}

impl FreeWait<'_> {
    /// True for another holder or another number of waiters, and after a while without a message.
    fn is_news(&self, snapshot: &Snapshot, now: Moment) -> bool {
        let Some((told, at)) = &self.told else {
            return true;
        };
        let is_same = match (&told.holder, &snapshot.holder) {
            (Some(before), Some(holder)) => is_same_lease(before, holder),
            (before, holder) => before.is_none() && holder.is_none(),
        };
        let is_in_line = told.queue.len() == snapshot.queue.len();
        !is_same || !is_in_line || now.since(*at) >= REPEAT_INTERVAL
    }

    fn report(&self, outcome: &'static str, waited: Duration, seen: &Snapshot) -> Result<(), Exit> {
        if !self.args.json {
            return Ok(());
        }
        output::print_json_answer(&WaitReport {
            store: self.client.store(),
            outcome,
            waited_ms: millis(waited),
            lock: LockJson::of(&self.args.name, seen),
        })
    }
}

/// The holder and the rest of its lease, as text.
fn held_by(holder: Option<&HolderView>) -> String {
    let Some(holder) = holder else {
        return "being granted to the first in line".into();
    };
    let held = holder.held_for.map(|held| format!(" {}", span(held)));
    let held = held.unwrap_or_default();
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

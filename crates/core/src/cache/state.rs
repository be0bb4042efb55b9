//! The transition function of one entry: state, step and time in; state and reply out. It reads only its arguments.
//!
//! Expiry is strict, as in Redis and as for locks: at its last millisecond a lease, a back-off or a key still counts. A soft expiry is the
//! first millisecond that is stale.

use std::collections::BTreeSet;
use std::time::Duration;

use super::entry::{Header, Standing, Value, Version};
use super::step::{Begin, Commit, CommitOutcome, Outcome, Reply, Step, Token};
use crate::owner::ClientId;
use crate::time::{Now, Ttl, millis};

/// How long the control is kept after its last use. A load that outlives its lease by this time fills as stale (K3).
pub const MEMORY: Duration = Duration::from_secs(15 * 60);

/// The distance that a new control keeps from a stored version that is ahead of the clock. A lost control may have counted on
/// from that version, by one for each load and invalidation, and therefore by less than this.
const LEAP_US: u64 = 3_600_000_000;

/// How many bits of the first token are added to that distance, and the spacing of these values. An earlier lost control may
/// have begun at the same stored version; the random part keeps their numbers apart.
const LEAP_BITS: u32 = 20;
const LEAP_APART_US: u64 = 1_024;

/// The longest poll interval of a waiter: subscribed, and not subscribed.
pub const POLL: Duration = Duration::from_millis(500);
/// The poll interval of a waiter without a subscription.
pub const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(25);

/// All that a store keeps of one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryState {
    /// The stored value, and the last millisecond at which it exists.
    pub value: Option<(Value, u64)>,
    /// The loads and invalidations.
    pub control: Option<Control>,
    /// Another program's data under the key, by its Redis type. Embedded stores leave it empty.
    pub foreign: Option<String>,
}

/// The state beside the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The last number given out (K2).
    pub last: Version,
    /// The number of the last invalidation, or of the beginning of this control. Loads below it may bring outdated values.
    pub epoch: Version,
    /// The current loader.
    pub loader: Option<Loader>,
    /// The back-off after a failed load.
    pub back_off: Option<BackOff>,
    /// How many loads have failed in a row.
    pub failures: u32,
    /// The clients to wake when the load ends.
    pub waiting: BTreeSet<ClientId>,
    /// The last millisecond at which the control exists.
    pub forget_at_ms: u64,
}

/// A load in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loader {
    /// Its identity.
    pub token: Token,
    /// Its version.
    pub version: Version,
    /// The last millisecond of its lease.
    pub until_ms: u64,
}

/// A time in which no client loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackOff {
    /// Its last millisecond.
    pub until_ms: u64,
    /// The error of the failed load.
    pub error: String,
}

impl EntryState {
    /// Takes one step at `now`.
    pub fn apply(&mut self, now: Now, step: &Step) -> Outcome {
        self.expire(now);
        if let Some(kind) = &self.foreign {
            return quiet(Reply::Foreign(kind.clone()));
        }
        match step {
            Step::Begin(begin) => quiet(self.begin(now, begin)),
            Step::Renew { token, lease } => quiet(self.renew(now, *token, *lease)),
            Step::Commit(commit) => self.commit(now, commit),
            Step::Abandon { token, back_off } => self.abandon(now, *token, back_off.as_ref()),
            Step::Invalidate { remove } => self.invalidate(now, *remove),
        }
    }

    /// The stored value; changes nothing.
    pub fn look(&self, now: Now) -> Option<&Value> {
        let (value, until_ms) = self.value.as_ref()?;
        (*until_ms >= now.millis()).then_some(value)
    }

    /// Whether the state is empty.
    pub fn is_empty(&self) -> bool {
        self.value.is_none() && self.control.is_none() && self.foreign.is_none()
    }

    /// Drops what has expired, as Redis does without a request (K7).
    pub fn expire(&mut self, now: Now) {
        let ms = now.millis();
        self.value.take_if(|(_, until_ms)| *until_ms < ms);
        let control = &mut self.control;
        control.take_if(|control| control.forget_at_ms < ms);
        if let Some(control) = control {
            control.loader.take_if(|loader| loader.until_ms < ms);
            control.back_off.take_if(|failed| failed.until_ms < ms);
        }
    }

    fn begin(&mut self, now: Now, begin: &Begin) -> Reply {
        let Begin { token, seen, .. } = *begin;
        let stored = self.value.as_ref().map(|(value, _)| value);
        let is_wanted = |value: &Value| !begin.over || value.header.version > seen;
        if let Some(fresh) = stored
            .filter(|value| value.standing(now) == Standing::Fresh)
            .filter(|value| is_wanted(value))
        {
            return Reply::Fresh(fresh.clone());
        }
        if self.control.is_none() {
            self.overtake(now, token);
        }
        let above = self.above();
        let stored = self.value.as_ref().map(|(value, _)| value);
        let stale = stored.filter(|value| value.header.version > seen).cloned();
        let ms = now.millis();
        // Without a control, the store does not know which loads were invalidated (K3).
        let control = self.control.get_or_insert_with(|| Control::new(above, now));
        if let Some(loader) = control.loader.filter(|loader| loader.token != token) {
            let left = Duration::from_millis(loader.until_ms - ms + 1);
            let poll = begin.listener.map_or(POLL_UNSUBSCRIBED, |_| POLL);
            control.waiting.extend(begin.listener);
            control.remember(now, Duration::ZERO);
            let poll_after = left.min(poll);
            return Reply::Busy { poll_after, stale };
        }
        if let Some(failed) = &control.back_off {
            let left = Duration::from_millis(failed.until_ms - ms + 1);
            let error = failed.error.clone();
            control.waiting.extend(begin.listener);
            control.remember(now, left);
            return Reply::BackOff { left, error, stale };
        }
        let version = control
            .loader
            .map_or_else(|| control.next(above, now), |mine| mine.version);
        control.loader = Some(Loader {
            token,
            version,
            until_ms: ms + begin.lease.millis(),
        });
        control.remember(now, begin.lease.get());
        Reply::Load {
            version,
            failures: control.failures,
            stale,
        }
    }

    /// Invalidates a value whose version is ahead of the wall clock: the clock was set back since it was loaded. Its version
    /// then exceeds all that were given out, as do those after it (K2, K3).
    fn overtake(&mut self, now: Now, token: Token) {
        if let Some((Value { header, .. }, _)) = &mut self.value
            && header.version.get() > now.wall_us
        {
            let random = u64::try_from(token.0 % (1 << LEAP_BITS)).unwrap_or_default();
            let leap = LEAP_US + random * LEAP_APART_US;
            let past = Version::new(header.version.get() + leap);
            header.version = Version::after(past, now.wall_us);
            header.invalidated = true;
        }
    }

    /// The stored version, or the lowest.
    fn above(&self) -> Version {
        let stored = self.value.as_ref();
        stored.map_or(Version::default(), |(value, _)| value.header.version)
    }

    fn renew(&mut self, now: Now, token: Token, lease: Ttl) -> Reply {
        let Some(control) = &mut self.control else {
            return Reply::NotLoading;
        };
        match control.loader.as_mut().filter(|mine| mine.token == token) {
            Some(mine) => {
                mine.until_ms = now.millis() + lease.millis();
                control.remember(now, lease.get());
                Reply::Renewed
            }
            None => Reply::NotLoading,
        }
    }

    fn commit(&mut self, now: Now, commit: &Commit) -> Outcome {
        let stored = self.value.as_ref().map(|(value, _)| value.header.version);
        let kept = self.keep(now, commit);
        let mut wakes = Vec::new();
        if let Some(control) = &mut self.control {
            // A commit older than the value, a repeat, or one of another control says nothing new about the source.
            let is_news = control.knows(commit.version)
                && stored.is_none_or(|stored| stored < commit.version);
            let is_mine = control
                .loader
                .is_some_and(|mine| mine.token == commit.token);
            if is_mine {
                control.loader = None;
            }
            if !is_news && !is_mine {
                return quiet(Reply::Committed(kept));
            }
            // The source works.
            (control.back_off, control.failures) = (None, 0);
            wakes = control.wake();
            control.remember(now, Duration::ZERO);
        }
        let reply = Reply::Committed(kept);
        Outcome { reply, wakes }
    }

    /// Stores the value as fresh, as stale, or not at all.
    fn keep(&mut self, now: Now, commit: &Commit) -> CommitOutcome {
        let version = commit.version;
        let stored = self.value.as_ref().map(|(value, _)| value.header);
        match stored {
            Some(newer) if newer.version > version => return CommitOutcome::Overtaken,
            // A repeat (K6); it may have been invalidated since.
            Some(same) if same.version == version && same.invalidated => {
                return CommitOutcome::Stale;
            }
            Some(same) if same.version == version => return CommitOutcome::Fresh(same.soft_ms),
            _ => {}
        }
        let control = self.control.as_ref();
        // A number above the control's own comes from a lost control, and the clock was set back: its order is unknown (K3, K4).
        if control.is_some_and(|control| !control.knows(version)) {
            return stored.map_or(CommitOutcome::Stale, |_| CommitOutcome::Overtaken);
        }
        let invalidated = control.is_none_or(|control| version < control.epoch);
        let ms = now.millis();
        let fresh_ms = if invalidated { 0 } else { commit.fresh_ms };
        let soft_ms = ms + fresh_ms;
        let header = Header {
            invalidated,
            version,
            stored_ms: ms,
            soft_ms,
            load_ms: commit.load_ms,
            format: commit.format,
        };
        let body = commit.body.clone();
        if fresh_ms + commit.stale_ms > 0 {
            self.value = Some((Value { header, body }, soft_ms + commit.stale_ms));
        }
        if invalidated {
            CommitOutcome::Stale
        } else {
            CommitOutcome::Fresh(soft_ms)
        }
    }

    fn abandon(&mut self, now: Now, token: Token, failed: Option<&(Ttl, String)>) -> Outcome {
        let Some(control) = &mut self.control else {
            return quiet(Reply::Abandoned);
        };
        // The load was taken over by another client, whose outcome counts.
        if control.loader.take_if(|mine| mine.token == token).is_none() {
            return quiet(Reply::Abandoned);
        }
        if let Some((back_off, error)) = failed {
            control.failures = control.failures.saturating_add(1);
            control.back_off = Some(BackOff {
                until_ms: now.millis() + back_off.millis(),
                error: error.clone(),
            });
        }
        control.remember(now, failed.map_or(Duration::ZERO, |(left, _)| left.get()));
        Outcome {
            reply: Reply::Abandoned,
            wakes: control.wake(),
        }
    }

    fn invalidate(&mut self, now: Now, remove: bool) -> Outcome {
        let above = self.above();
        if remove {
            self.value = None;
        }
        if let Some((value, _)) = &mut self.value {
            value.header.invalidated = true;
        }
        let mut wakes = Vec::new();
        // Without a control, every load in progress fills as stale anyway.
        if let Some(control) = &mut self.control {
            control.epoch = control.next(above, now);
            // Its value is not wanted any more, so no client waits for it.
            control.loader = None;
            control.remember(now, Duration::ZERO);
            wakes = control.wake();
        }
        let reply = Reply::Invalidated;
        Outcome { reply, wakes }
    }
}

impl Control {
    /// A new control: it counts everything before it as invalidated.
    fn new(above: Version, now: Now) -> Self {
        let epoch = Version::after(above, now.wall_us);
        Self {
            last: epoch,
            epoch,
            loader: None,
            back_off: None,
            failures: 0,
            waiting: BTreeSet::new(),
            forget_at_ms: 0,
        }
    }

    /// The next number, above `above` and all that were given out (K2).
    fn next(&mut self, above: Version, now: Now) -> Version {
        self.last = Version::after(self.last.max(above), now.wall_us);
        self.last
    }

    /// Whether this control may have given out `version`. Otherwise a lost control did, which was ahead of this one.
    fn knows(&self, version: Version) -> bool {
        version <= self.last
    }

    /// Keeps the control for [`MEMORY`] longer than `needed`.
    fn remember(&mut self, now: Now, needed: Duration) {
        let until = now.millis() + millis(needed + MEMORY);
        self.forget_at_ms = self.forget_at_ms.max(until);
    }

    fn wake(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.waiting).into_iter().collect()
    }
}

fn quiet(reply: Reply) -> Outcome {
    let wakes = Vec::new();
    Outcome { reply, wakes }
}

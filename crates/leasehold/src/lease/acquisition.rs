//! An owner's way to the lock, as its queue knows it. Must never count on a grant for longer than the store does.
//!
//! # Invariants
//!
//! - **W1** A request to the store is never dropped half-way: whoever stops waiting, its outcome is awaited, then undone.
//! - **W3** An unreachable store is never reported as a busy lock, and an unknown outcome never as "not acquired".
//! - **W4** A grant that was only heard of counts from a moment before which it cannot have been made: the answer to the last
//!   request told the store's time, and the wake tells it again, both over one connection: another may be to another server.

use std::time::Duration;

use leasehold_core::{Block, Busy, CLAIM_WINDOW, LockName, Owner, Ttl, Wake};

use super::terms::{Term, Terms, deadline};
use super::timers::Ticket;
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};

/// How long a request that is not in the queue puts up with a store that does not answer.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// A hint to whoever asks for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// Something may have been missed: ask.
    Ask,
    /// The lock may be there to be claimed.
    Claim,
}

/// The first request to the store, on behalf of a queue.
pub(super) struct FirstRequest {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    /// How many fences it asks for.
    pub(super) block: Block,
    pub(super) waits: bool,
}

/// A request for a lock on its way. Its answer brings this back, also when nobody wants the lock any more (W1).
#[derive(Debug)]
pub(super) struct SentRequest {
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    /// When it was made, before it was sent.
    pub(super) sent: Moment,
    /// Whether it queues.
    pub(super) waits: bool,
    pub(super) left: Leftovers,
}

/// The traces that an owner may have left in the store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leftovers {
    /// The store has answered that it holds or waits.
    pub(super) queued: bool,
    /// A request was not answered and may be carried out until then.
    pub(super) unsettled_until: Option<Moment>,
}

impl Leftovers {
    /// A request was carried out that nobody knew of, or may have been: it is undone at once.
    pub(super) fn unsettle(&mut self, now: Moment) {
        self.unsettled_until.get_or_insert(now);
    }

    pub(super) fn is_something(&self) -> bool {
        self.queued || self.unsettled_until.is_some()
    }
}

/// What a queue knows of its owner's way to the lock.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    /// When the request on its way was sent.
    pub(super) under_way: Option<Moment>,
    /// When the first of the requests was sent that failed since the store last answered.
    in_vain_since: Option<Moment>,
    /// The last answer that the lock is busy, and when that was asked for.
    pub(super) busy: Option<(Moment, Busy)>,
    /// The store's time in that answer, and when it was asked for, if the connection is still the same: only then it tells the
    /// time of a grant (W4). The next connection may be to another server, with another clock.
    dated: Option<(Moment, u64)>,
    /// Whether the connection is still the one of when the request on its way was sent.
    unbroken: bool,
    /// The last failure, since the store last answered.
    pub(super) failure: Option<StoreError>,
    pub(super) left: Leftovers,
    /// Somebody waits behind it already: that was told sooner than that the lock was granted.
    pub(super) wanted: bool,
    /// The strongest hint that came while a request was under way.
    pub(super) hint: Option<Hint>,
    /// Where it stands among the timers to ask again by itself, unless a request is under way.
    pub(super) asks_at: Option<Ticket>,
    /// Since when there has been no answer.
    failing_since: Option<Moment>,
    backoff: Backoff,
}

impl Acquisition {
    pub(super) fn new(owner: Owner, terms: Terms, now: Moment) -> Self {
        Self {
            owner,
            terms,
            under_way: Some(now),
            in_vain_since: None,
            busy: None,
            dated: None,
            unbroken: true,
            failure: None,
            left: Leftovers::default(),
            wanted: false,
            hint: None,
            asks_at: None,
            failing_since: None,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
        }
    }

    /// Whether the store has said that the lock is busy, and nothing else since.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some() && self.failure.is_none()
    }

    /// A request is about to be sent.
    pub(super) fn sends(&mut self, sent: Moment) {
        (self.under_way, self.unbroken) = (Some(sent), true);
    }

    /// The request that was sent at `sent` was answered, or failed, and leaves this behind.
    pub(super) fn ends(&mut self, sent: Moment, answered: bool, left: Leftovers) {
        self.under_way = None;
        self.in_vain_since = (!answered).then_some(self.in_vain_since.unwrap_or(sent));
        self.left = left;
    }

    /// Since when an answer is missing, if one is.
    pub(super) fn silent_since(&self) -> Option<Moment> {
        self.under_way.or(self.in_vain_since)
    }

    /// The lock is busy, was the answer to what was sent at `sent`.
    pub(super) fn heard(&mut self, sent: Moment, busy: Busy) {
        self.dated = self.unbroken.then_some((sent, busy.at_us));
        (self.busy, self.failure) = (Some((sent, busy)), None);
        self.failing_since = None;
        self.backoff.reset();
    }

    /// The connection was cut, or is another one.
    pub(super) fn broken(&mut self) {
        (self.dated, self.unbroken) = (None, false);
    }

    /// A request failed: when to ask again. Not if there is no hope, or the outage has lasted too long: `in_line` is the limit of a request in
    /// queue; then the error says why.
    pub(super) fn failed(
        &mut self,
        error: StoreError,
        in_line: Duration,
        now: Moment,
    ) -> Result<Duration, StoreError> {
        let since = *self.failing_since.get_or_insert(now);
        let queued = self.left.queued;
        // In queue, a full server is one that may have room again; otherwise it is a clear answer.
        let hopeless = !(error.kind.is_transient() || queued && error.kind == StoreErrorKind::Full);
        let limit = if queued { in_line } else { FIRST_CONTACT };
        if hopeless || now.since(since) >= limit {
            // Whatever the last request came to, an earlier one may count (W3).
            return Err(match self.left.unsettled_until {
                Some(_) => error.unknown(),
                None => error,
            });
        }
        self.failure = Some(error);
        Ok(self.backoff.pause())
    }

    /// A full server refuses to be asked, but not to let a waiter claim what it may have granted meanwhile.
    pub(super) fn is_full(&self) -> bool {
        let full = |failure: &StoreError| failure.kind == StoreErrorKind::Full;
        self.failure.as_ref().is_some_and(full)
    }

    /// Until when a grant may be relied on that was only heard of, if that is worth anything at `now` (W4).
    pub(super) fn granted_until(&self, wake: &Wake, now: Moment) -> Option<Term> {
        let (sent, at_us) = self.dated?;
        let passed = Duration::from_micros(wake.at_us.checked_sub(at_us)?);
        // The two clocks may run at speeds that differ by 1 %, as everywhere.
        let granted = sent.after(passed.mul_f64(0.99));
        let window =
            Ttl::new(CLAIM_WINDOW).map_or(self.terms.ttl, |window| window.min(self.terms.ttl));
        let until = deadline(granted.min(now), window);
        let term = Term {
            asked_at: sent,
            until,
            lasts: window,
        };
        (granted <= now && until.since(now) > window.get() / 2).then_some(term)
    }
}

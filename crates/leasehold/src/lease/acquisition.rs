//! The acquisition of a lock by one owner, on behalf of the callers of its line.
//!
//! # Invariants
//!
//! - **W1** A request to the store is never dropped half-way: if its caller stops waiting, the client awaits the outcome and undoes it.
//! - **W3** An unreachable store is never reported as a busy lock, and an unknown outcome never as "not acquired".
//! - **W4** A grant that is known only from a wake counts from the earliest moment at which it can have been made. The client computes it
//!   from the store's time in the last answer and in the wake. Both must come over one connection, since another one may lead to another
//!   server.

use std::time::Duration;

use leasehold_core::{Busy, CLAIM_WINDOW, Ttl, Wake};

use super::terms::{Term, Terms, deadline};
use super::timers::Ticket;
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};

/// How long a request that is not queued yet is retried while the store does not answer.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// A hint for an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// Something may have been missed: ask.
    Ask,
    /// The lock may be there to be claimed.
    Claim,
}

/// A request for a lock that is under way.
#[derive(Debug)]
pub(super) struct SentRequest {
    pub(super) ttl: Ttl,
    /// When it was made, before it was sent.
    pub(super) sent: Moment,
    /// Whether it joins the store's queue.
    pub(super) waits: bool,
    /// What the owner may have left in the store before.
    pub(super) left: Leftovers,
}

/// The traces that an owner may have left in the store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leftovers {
    /// The store has answered that it holds or waits.
    pub(super) queued: bool,
    /// A request was not answered and may be executed until this moment.
    pub(super) unsettled_until: Option<Moment>,
}

impl Leftovers {
    /// A request was or may have been executed without the client's knowledge. It is undone at once.
    pub(super) fn unsettle(&mut self, now: Moment) {
        self.unsettled_until.get_or_insert(now);
    }

    pub(super) fn is_something(&self) -> bool {
        self.queued || self.unsettled_until.is_some()
    }
}

/// The state of an acquisition.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) terms: Terms,
    /// When the first request was sent that has failed since the store last answered.
    in_vain_since: Option<Moment>,
    /// The last answer that the lock is busy, and when that was asked for.
    pub(super) busy: Option<(Moment, Box<Busy>)>,
    /// When that request was sent, and the store's time in the answer, if the connection has not changed since. Only then the client can
    /// date a grant (W4): another connection may lead to another server with another clock.
    dated: Option<(Moment, u64)>,
    /// Whether the connection has not changed since the request under way was sent.
    unbroken: bool,
    /// The last failure, since the store last answered.
    pub(super) failure: Option<Box<StoreError>>,
    pub(super) left: Leftovers,
    /// Another client waits behind it already: that notice came before the grant.
    pub(super) wanted: bool,
    /// The strongest hint that came while a request was under way.
    pub(super) hint: Option<Hint>,
    /// The timer for the next poll, unless a request is under way.
    pub(super) asks_at: Option<Ticket>,
    /// Since when there has been no answer.
    failing_since: Option<Moment>,
    backoff: Backoff,
}

impl Acquisition {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            terms,
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
    pub(super) fn sends(&mut self) {
        self.unbroken = true;
    }

    /// A request was answered, or failed.
    pub(super) fn ends(&mut self, request: &SentRequest, answered: bool) {
        let in_vain_since = self.in_vain_since.unwrap_or(request.sent);
        self.in_vain_since = (!answered).then_some(in_vain_since);
        self.left = request.left;
    }

    /// Since when an answer is missing, if one is.
    pub(super) fn silent_since(&self, under_way: Option<&SentRequest>) -> Option<Moment> {
        under_way.map(|request| request.sent).or(self.in_vain_since)
    }

    /// The answer to the request sent at `sent` was that the lock is busy.
    pub(super) fn heard(&mut self, sent: Moment, busy: Box<Busy>) {
        self.dated = self.unbroken.then_some((sent, busy.at_us));
        (self.busy, self.failure) = (Some((sent, busy)), None);
        self.failing_since = None;
        self.backoff.reset();
    }

    /// The connection was cut, or is another one.
    pub(super) fn broken(&mut self) {
        (self.dated, self.unbroken) = (None, false);
    }

    /// A request failed. Returns the pause before the next one, or the error if a retry is hopeless or the outage has lasted too long.
    /// `outage_timeout` is the limit for a queued request.
    pub(super) fn failed(
        &mut self,
        error: StoreError,
        outage_timeout: Duration,
        now: Moment,
    ) -> Result<Duration, StoreError> {
        let since = *self.failing_since.get_or_insert(now);
        let queued = self.left.queued;
        // A queued request waits until a full server has room again. For any other request, "full" is a final answer.
        let hopeless = !(error.kind.is_transient() || queued && error.kind == StoreErrorKind::Full);
        let limit = if queued {
            outage_timeout
        } else {
            FIRST_CONTACT
        };
        if hopeless || now.since(since) >= limit {
            // Whatever the outcome of the last request, an earlier one may have taken effect (W3).
            return Err(match self.left.unsettled_until {
                Some(_) => error.unknown(),
                None => error,
            });
        }
        self.failure = Some(Box::new(error));
        Ok(self.backoff.pause())
    }

    /// Whether the server was full. It refuses new requests then, but a waiter can still claim a grant.
    pub(super) fn is_full(&self) -> bool {
        let full = |failure: &StoreError| failure.kind == StoreErrorKind::Full;
        self.failure.as_deref().is_some_and(full)
    }

    /// Until when a grant may be relied on that is known only from a wake, if that is long enough at `now` (W4).
    pub(super) fn granted_until(&self, wake: &Wake, now: Moment) -> Option<Term> {
        let (sent, at_us) = self.dated?;
        let passed = Duration::from_micros(wake.at_us.checked_sub(at_us)?);
        // The speeds of the two clocks may differ by 1 %, as everywhere.
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

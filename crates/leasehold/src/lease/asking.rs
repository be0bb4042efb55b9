//! What a line knows of its owner's way to the lock, and how it speaks to whoever is on it. Must never count on a grant for
//! longer than the store does.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::{Block, Busy, CLAIM_WINDOW, Owner, Ttl, Wake};
use tokio::sync::Notify;

use super::hold::deadline;
use super::line::Terms;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::sync::Mutex;

/// What a contender was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The lock may be yours: claim it.
    Granted,
    /// Something may have been missed: ask.
    Ask,
    /// The lock was given to someone in the line.
    Served,
    /// Nobody wants the lock any more.
    Abandoned,
}

/// A contender's ear.
#[derive(Debug, Default)]
pub(super) struct Ear {
    told: Mutex<Option<Told>>,
    bell: Notify,
}

impl Ear {
    pub(super) async fn hear(&self) -> Told {
        self.bell.notified().await;
        self.peek().unwrap_or(Told::Ask)
    }

    fn tell(&self, told: Told) {
        let mut last = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // What is final stays, and a grant is more than a hint to ask.
        if !matches!(*last, Some(Told::Served | Told::Abandoned))
            && (told != Told::Ask || last.is_none())
        {
            *last = Some(told);
        }
        self.bell.notify_one();
    }

    /// What was told, once, unless it is final.
    pub(super) fn peek(&self) -> Option<Told> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match *told {
            Some(Told::Served | Told::Abandoned) => *told,
            _ => told.take(),
        }
    }
}

/// A first request to the store.
pub(super) struct Ask {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    /// How many fences it asks for.
    pub(super) block: Block,
    pub(super) waits: bool,
    pub(super) ear: Arc<Ear>,
}

/// What a line knows of its owner's way to the lock.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    /// Whether the request on its way queues.
    pub(super) waits: bool,
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
    /// A request was not answered and may be carried out until then.
    pub(super) unsettled_until: Option<Moment>,
    /// Somebody waits behind it already: that was told sooner than that the lock is ours.
    pub(super) wanted: bool,
    pub(super) ear: Arc<Ear>,
}

/// For how long a grant counts.
#[derive(Clone, Copy)]
pub(super) struct Term {
    /// When the server was asked last that granted it.
    pub(super) asked_at: Moment,
    /// Until when it may be relied on.
    pub(super) until: Moment,
    /// What it was granted for.
    pub(super) lasts: Ttl,
}

impl Asking {
    pub(super) fn new(owner: Owner, terms: Terms, waits: bool, now: Moment) -> Self {
        Self {
            owner,
            terms,
            waits,
            under_way: Some(now),
            in_vain_since: None,
            busy: None,
            dated: None,
            unbroken: true,
            failure: None,
            unsettled_until: None,
            wanted: false,
            ear: Arc::default(),
        }
    }

    /// Whether the store has said that the lock is busy, and nothing else since.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some() && self.failure.is_none()
    }

    /// A request is about to be sent.
    pub(super) fn sends(&mut self, sent: Moment, waits: bool) {
        (self.under_way, self.waits, self.unbroken) = (Some(sent), waits, true);
    }

    /// The request that was sent at `sent` was answered, or failed.
    pub(super) fn ends(&mut self, sent: Moment, answered: bool) {
        self.under_way = None;
        self.in_vain_since = (!answered).then_some(self.in_vain_since.unwrap_or(sent));
    }

    /// Since when an answer is missing, if one is.
    pub(super) fn silent_since(&self) -> Option<Moment> {
        self.under_way.or(self.in_vain_since)
    }

    /// The lock is busy, was the answer to what was sent at `sent`.
    pub(super) fn heard(&mut self, sent: Moment, busy: Busy) {
        self.dated = self.unbroken.then_some((sent, busy.at_us));
        (self.busy, self.failure) = (Some((sent, busy)), None);
    }

    /// The connection was cut, or is another one.
    pub(super) fn broken(&mut self) {
        (self.dated, self.unbroken) = (None, false);
    }

    /// Nobody wants the lock any more: whoever carries the request undoes it.
    pub(super) fn abandon(&self) {
        self.ear.tell(Told::Abandoned);
    }

    /// The lock was given to someone in the line.
    pub(super) fn served(&self) {
        self.ear.tell(Told::Served);
    }

    /// Wakes may have been missed.
    pub(super) fn ask(&self) {
        self.ear.tell(Told::Ask);
    }

    /// The lock may be there to be claimed.
    pub(super) fn claim(&self) {
        self.ear.tell(Told::Granted);
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

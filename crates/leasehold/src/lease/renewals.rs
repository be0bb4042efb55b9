//! Renews all leases of a client and watches their deadlines.
//!
//! A lease is added by the thread that acquires it and removed by the thread that releases it, so no thread has to wake. The client's
//! thread is needed only when a renewal or a deadline is due.
//!
//! # Invariants
//!
//! - **RN1** A lease has at most one renewal under way, so answers cannot overtake each other.
//! - **RN2** Each lease in `leases` has one timer, at its next event and never later than its deadline. So a loss is reported on time, even
//!   if a renewal hangs.
//! - **RN3** An answer for a lease that is over changes nothing. If it says *held*, the lock is released: the renewal was executed after the
//!   client had given the lease up.
//! - **RN4** While an unanswered request may still be executed, no deadline is later than its TTL allows: executed after a longer renewal, it
//!   would shorten the lease without notice.
//! - **RN5** At most [`AT_ONCE`] automatic renewals are under way, so many renewals that are due together do not delay other requests.

mod answers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;

use leasehold_core::{Held, Owner, Ttl};

use super::effects::{Due, Effect, Effects, To};
use super::hold::Hold;
use super::renewal::{Renewal, RenewalCause};
use super::renewal_entry::{ExtendReply, Progress, RenewalEntry};
use super::terms::deadline;
use crate::clock::Moment;
use crate::error::{Error, LossCause, Replaced, StoreError};

/// The limit of automatic renewals under way: one batch, so another request does not wait for more than that.
pub(super) const AT_ONCE: usize = 32;

/// The leases of a client.
pub(super) struct Renewals {
    leases: HashMap<Owner, RenewalEntry>,
    under_way: usize,
    /// Due, but too many renewals are under way (RN5).
    backlog: VecDeque<Owner>,
    /// Lost while a renewal was under way. The store may still execute it (RN3).
    lost_under_way: HashSet<Owner>,
    /// The last replacement of the server, and when the client learned of it.
    replaced: Option<(Moment, Replaced)>,
    /// Lost leases that their queues do not know of yet.
    lost: Vec<Arc<Hold>>,
    /// The store's name in errors.
    store: Arc<str>,
}

/// The part of an answer to a renewal that concerns queues and settlements.
pub(super) struct Heard {
    /// The lease goes on.
    pub(super) confirmed: Option<Held>,
    /// The store has a grant that no lease uses.
    pub(super) is_to_be_undone: bool,
}

impl Renewals {
    pub(super) fn new(store: Arc<str>) -> Self {
        Self {
            leases: HashMap::new(),
            under_way: 0,
            backlog: VecDeque::new(),
            lost_under_way: HashSet::new(),
            replaced: None,
            lost: Vec::new(),
            store,
        }
    }

    /// Adds a new lease.
    pub(super) fn keep(&mut self, hold: &Arc<Hold>, now: Moment, effects: &mut Effects) {
        if hold.is_over() {
            return;
        }
        let mut entry = RenewalEntry::new(hold.clone(), now);
        if let Some((at, how)) = self.replaced
            && hold.asked_at <= at
        {
            // The old server may have granted it (L4).
            entry.replaced(how, now);
        }
        schedule(&hold.owner, &mut entry, effects);
        self.leases.insert(hold.owner.clone(), entry);
    }

    /// The next lease of the same owner, after a hand-over. It has the deadline of the lease before it.
    pub(super) fn hand_on(
        &mut self,
        hold: &Arc<Hold>,
        ttl: Ttl,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.leases.get_mut(&hold.owner) else {
            // Lost a moment ago.
            let ended = hold.lose(LossCause::Deadline(None));
            return effects.push(Effect::Ended(hold.clone(), ended));
        };
        if let Err(cause) = hold.renew_until(entry.hold.deadline()) {
            // Its deadline has passed since it was made, and a reader may have seen that (L3, Q6).
            return self.lose(hold.clone(), cause, effects);
        }
        let same_plan = entry.hold.max_until.is_none()
            && hold.max_until.is_none()
            && entry.hold.auto_renew == hold.auto_renew;
        // The doubt may be newer than the lease.
        hold.doubt_like(&entry.hold);
        entry.hold = hold.clone();
        if entry.ttl != ttl {
            entry.ask_for(ttl);
        }
        if !same_plan {
            schedule(&hold.owner, entry, effects);
        }
        let left = hold.deadline().since(hold.since);
        if left < ttl.get() / 2 {
            entry.owe();
        }
        if left < ttl.get() / 2 && entry.progress != Progress::UnderWay {
            self.send(&hold.owner, RenewalCause::Asked, now, effects);
        }
    }

    /// The lease is over: it is not renewed any more.
    pub(super) fn forget(&mut self, owner: &Owner, effects: &mut Effects) {
        let Some(entry) = self.leases.remove(owner) else {
            return;
        };
        if let Some(ticket) = entry.ticket {
            effects.unset(ticket);
        }
        if !entry.by_hand.is_empty() {
            effects.push(Effect::Forgotten(entry.by_hand));
        }
    }

    /// Renews a lease now, for `ttl`, and uses `ttl` from then on.
    pub(super) fn extend(
        &mut self,
        owner: &Owner,
        ttl: Ttl,
        caller: ExtendReply,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.leases.get_mut(owner) else {
            return effects.push(Effect::Forgotten(vec![caller]));
        };
        entry.ask_for(ttl);
        entry.by_hand.push(caller);
        if entry.progress != Progress::UnderWay {
            self.send(owner, RenewalCause::Asked, now, effects);
        }
    }

    /// The store answers again. Failed renewals are retried now, since a lease may expire before the next attempt.
    pub(super) fn reconnected(&mut self, now: Moment, effects: &mut Effects) {
        for (owner, entry) in self.in_order() {
            if entry.is_tried_again(now) {
                schedule(owner, entry, effects);
            }
        }
    }

    /// Another server answers. It is asked for each lease at once, the lease with the earliest deadline first (L4).
    pub(super) fn replaced(&mut self, how: Replaced, now: Moment, effects: &mut Effects) {
        self.backlog.clear();
        self.replaced = Some((now, how));
        for (owner, entry) in self.in_order() {
            entry.replaced(how, now);
            schedule(owner, entry, effects);
        }
    }

    /// All leases, the one with the earliest deadline first.
    fn in_order(&mut self) -> Vec<(&Owner, &mut RenewalEntry)> {
        let mut leases: Vec<_> = self.leases.iter_mut().collect();
        leases.sort_by_cached_key(|(owner, entry)| (entry.hold.deadline(), owner.id().to_owned()));
        leases
    }

    /// The timer of this lease has fired.
    pub(super) fn due(&mut self, owner: &Owner, now: Moment, effects: &mut Effects) {
        let Some(entry) = self.leases.get_mut(owner) else {
            return;
        };
        if let Some(cause) = entry.hold.overdue(now) {
            let hold = entry.hold.clone();
            self.lose(hold, cause, effects);
        } else if entry.is_due(now) && self.under_way >= AT_ONCE {
            entry.progress = Progress::Queued;
            self.backlog.push_back(owner.clone());
            schedule(owner, entry, effects);
        } else if entry.is_due(now) {
            self.send(owner, RenewalCause::Due, now, effects);
        } else {
            schedule(owner, entry, effects);
        }
    }

    /// A request of this owner for `ttl` was not answered, and may be executed after later requests.
    pub(super) fn request_may_be_late(
        &mut self,
        owner: &Owner,
        ttl: Ttl,
        now: Moment,
        effects: &mut Effects,
    ) {
        if let Some(entry) = self.leases.get_mut(owner) {
            entry.request_may_be_late(ttl, now);
            schedule(owner, entry, effects);
        }
    }

    /// The leases that were lost since the last call.
    pub(super) fn take_lost(&mut self) -> Vec<Arc<Hold>> {
        mem::take(&mut self.lost)
    }

    /// Sends the next renewals of the backlog (RN5).
    fn send_from_backlog(&mut self, now: Moment, effects: &mut Effects) {
        while self.under_way < AT_ONCE
            && let Some(owner) = self.backlog.pop_front()
        {
            let queued = |entry: &&mut RenewalEntry| entry.progress == Progress::Queued;
            // If a caller renewed it meanwhile, it has its renewal (RN1).
            if let Some(entry) = self.leases.get_mut(&owner).filter(queued) {
                entry.progress = Progress::Planned;
                if entry.is_due(now) {
                    self.send(&owner, RenewalCause::Due, now, effects);
                } else {
                    schedule(&owner, entry, effects);
                }
            }
        }
    }

    /// Sends a renewal, unless the lease ended a moment ago.
    fn send(&mut self, owner: &Owner, why: RenewalCause, now: Moment, effects: &mut Effects) {
        let Some(entry) = self.leases.get_mut(owner) else {
            return;
        };
        let hold = entry.hold.clone();
        let callers = mem::take(&mut entry.by_hand);
        if hold.is_lost() || hold.is_past() {
            // Its timer must go, or it would fire without end (RN2).
            let verdict = over(&hold);
            if let Some(lost) = hold.loss() {
                let ended = self.end(hold, lost.cause, effects);
                effects.push(ended);
            } else {
                self.forget(owner, effects);
                self.lost.push(hold);
            }
            effects.push(Effect::Extended(callers, Err(verdict)));
            return;
        }
        let renewal = Renewal {
            sent: now,
            ttl: entry.asks_for(&callers, now),
            why,
            callers,
            hold,
        };
        // The deadline is at most the one that this renewal would set, whatever its outcome (L1). Set it first, since the loss is reported
        // then (RN2).
        renewal.hold.before_renewal(deadline(now, renewal.ttl));
        entry.progress = Progress::UnderWay;
        if entry.is_to_be_indexed(now) {
            effects.push(Effect::Index(renewal.hold.name.clone()));
        }
        schedule(owner, entry, effects);
        if why == RenewalCause::Due {
            self.under_way += 1;
        }
        let (name, step) = renewal.step();
        let to = To::Renewal(renewal);
        effects.push(Effect::Send { name, step, to });
    }

    /// Ends a lease whose deadline has passed. If a renewal is under way, its answer may have to be undone (RN3).
    fn lose(&mut self, hold: Arc<Hold>, cause: LossCause, effects: &mut Effects) {
        let entry = self.leases.get(&hold.owner);
        if entry.is_some_and(|entry| entry.progress == Progress::UnderWay) {
            self.lost_under_way.insert(hold.owner.clone());
        }
        let ended = self.end(hold, cause, effects);
        effects.push(ended);
    }

    /// Ends a lost lease. Returns the effect that reports it.
    #[must_use]
    fn end(&mut self, hold: Arc<Hold>, cause: LossCause, effects: &mut Effects) -> Effect {
        let ended = Effect::Ended(hold.clone(), hold.lose(cause));
        self.forget(&hold.owner, effects);
        self.lost.push(hold);
        ended
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether RN2 holds.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for entry in self.leases.values() {
            let due = entry.ticket.map(super::timers::Ticket::at);
            assert!(due.is_some_and(|at| at <= entry.hold.valid_until()), "RN2");
        }
    }
}

/// The error for a renewal of a lease that is over.
fn over(hold: &Hold) -> Error {
    let lost = hold.loss().map(Error::Lost);
    lost.unwrap_or_else(|| StoreError::closed().into())
}

/// Sets the timer of a lease (RN2).
fn schedule(owner: &Owner, entry: &mut RenewalEntry, effects: &mut Effects) {
    if let Some(ticket) = entry.ticket.take() {
        effects.unset(ticket);
    }
    entry.ticket = Some(effects.wake(entry.next_event(), Due::Lease(owner.clone())));
}

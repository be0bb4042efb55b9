//! Renews all leases of a client and watches their deadlines. Must never renew a lease that is over.
//!
//! A lease is looked after from where it was acquired, and given up from where it is released, without waking anybody; the
//! client's thread only comes in when a renewal or a deadline is due.
//!
//! # Invariants
//!
//! - **R1** A lease has at most one renewal under way, so its answers cannot overtake each other.
//! - **R2** Every lease in `leases` stands among the timers once, at the time of its next event, which is never later than its
//!   deadline, wherever that moves: so loss is told on time even when a renewal hangs.
//! - **R3** An answer to a lease that is over changes nothing. If it says *held*, the lock is released: the renewal was
//!   carried out after the client had given up.
//! - **R4** While a request without an answer may still be carried out, no deadline is later than its TTL allows: carried
//!   out after a longer renewal, it would shorten the lease without a word.
//! - **R5** At most [`AT_ONCE`] leases that renew themselves have a renewal under way, so that many that are due together
//!   do not keep other requests waiting.

mod answers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;

use leasehold_core::{Held, Owner, Ttl};

use super::effects::{Due, Effect, Effects, To};
use super::hold::Hold;
use super::renewal::{Renewal, Why};
use super::renewal_entry::{ExtendReply, Progress, RenewalEntry};
use super::terms::deadline;
use crate::clock::Moment;
use crate::error::{Error, LossCause, Replaced, StoreError};

/// How many renewals that came due are under way at once: a batch, so that a request of somebody else does not wait for more
/// than that.
pub(super) const AT_ONCE: usize = 32;

/// The leases of a client.
pub(super) struct Renewals {
    leases: HashMap<Owner, RenewalEntry>,
    under_way: usize,
    /// Due, and waiting for room (R5).
    backlog: VecDeque<Owner>,
    /// Lost while a renewal was under way, which may be carried out all the same (R3).
    lost_under_way: HashSet<Owner>,
    /// When it was heard that the server was replaced, and how, the last time.
    replaced: Option<(Moment, Replaced)>,
    /// Lost, and their queues do not know yet.
    lost: Vec<Arc<Hold>>,
    /// The store's name in errors.
    store: Arc<str>,
}

/// The news in an answer to a renewal, for queues and settlements.
pub(super) struct Heard {
    /// The lease goes on.
    pub(super) confirmed: Option<Held>,
    /// The store has what nobody uses.
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

    /// Looks after a new lease.
    pub(super) fn keep(&mut self, hold: &Arc<Hold>, now: Moment, effects: &mut Effects) {
        if hold.is_over() {
            return;
        }
        let mut entry = RenewalEntry::new(hold.clone(), now);
        if let Some((at, how)) = self.replaced
            && hold.asked_at <= at
        {
            // Perhaps by word of the server of before (L4).
            entry.replaced(how, now);
        }
        schedule(&hold.owner, &mut entry, effects);
        self.leases.insert(hold.owner.clone(), entry);
    }

    /// The next lease of the same owner, handed on. It lasts for as long as the one before it.
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
            // It was made with a deadline that has passed since, and a look at it may have seen that (L3, Q6).
            return self.lose(hold.clone(), cause, effects);
        }
        let same_plan = entry.hold.max_until.is_none()
            && hold.max_until.is_none()
            && entry.hold.auto_renew == hold.auto_renew;
        // Heard since it was made.
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
            self.send(&hold.owner, Why::Asked, now, effects);
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

    /// Renews now, for `ttl` from now on.
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
            self.send(owner, Why::Asked, now, effects);
        }
    }

    /// The store is there again: what could not be renewed is renewed now, since it may be gone before the next attempt.
    pub(super) fn reconnected(&mut self, now: Moment, effects: &mut Effects) {
        for (owner, entry) in self.in_order() {
            if entry.is_tried_again(now) {
                schedule(owner, entry, effects);
            }
        }
    }

    /// Another server answers: what it knows of each lease is asked at once, the one that ends soonest first (L4).
    pub(super) fn replaced(&mut self, how: Replaced, now: Moment, effects: &mut Effects) {
        self.backlog.clear();
        self.replaced = Some((now, how));
        for (owner, entry) in self.in_order() {
            entry.replaced(how, now);
            schedule(owner, entry, effects);
        }
    }

    /// All leases, the one that ends soonest first.
    fn in_order(&mut self) -> Vec<(&Owner, &mut RenewalEntry)> {
        let mut leases: Vec<_> = self.leases.iter_mut().collect();
        leases.sort_by_cached_key(|(owner, entry)| (entry.hold.deadline(), owner.id().to_owned()));
        leases
    }

    /// Something is due for this lease.
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
            self.send(owner, Why::Due, now, effects);
        } else {
            schedule(owner, entry, effects);
        }
    }

    /// A request of this owner for `ttl` was not answered, and may be carried out after whatever is sent from now on.
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

    /// Those that were lost since this was asked last.
    pub(super) fn take_lost(&mut self) -> Vec<Arc<Hold>> {
        mem::take(&mut self.lost)
    }

    /// The next one that waits for room (R5).
    fn send_from_backlog(&mut self, now: Moment, effects: &mut Effects) {
        while self.under_way < AT_ONCE
            && let Some(owner) = self.backlog.pop_front()
        {
            let queued = |entry: &&mut RenewalEntry| entry.progress == Progress::Queued;
            // Renewed by hand meanwhile, it has its renewal (R1).
            if let Some(entry) = self.leases.get_mut(&owner).filter(queued) {
                entry.progress = Progress::Planned;
                if entry.is_due(now) {
                    self.send(&owner, Why::Due, now, effects);
                } else {
                    schedule(&owner, entry, effects);
                }
            }
        }
    }

    /// Sends a renewal, unless the lease ended a moment ago.
    fn send(&mut self, owner: &Owner, why: Why, now: Moment, effects: &mut Effects) {
        let Some(entry) = self.leases.get_mut(owner) else {
            return;
        };
        let hold = entry.hold.clone();
        let callers = mem::take(&mut entry.by_hand);
        if hold.is_lost() || hold.is_past() {
            // Left among the timers, it would be due for ever (R2).
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
        // Whatever becomes of it, the lease counts for no longer than it leaves (L1); first, so that this is when its loss is
        // told (R2).
        renewal.hold.before_renewal(deadline(now, renewal.ttl));
        entry.progress = Progress::UnderWay;
        if entry.is_to_be_indexed(now) {
            effects.push(Effect::Index(renewal.hold.name.clone()));
        }
        schedule(owner, entry, effects);
        if why == Why::Due {
            self.under_way += 1;
        }
        let (name, step) = renewal.step();
        let to = To::Renewal(renewal);
        effects.push(Effect::Send { name, step, to });
    }

    /// Gives up a lease that time has ended. If a renewal is under way, its answer is to undo that (R3).
    fn lose(&mut self, hold: Arc<Hold>, cause: LossCause, effects: &mut Effects) {
        let entry = self.leases.get(&hold.owner);
        if entry.is_some_and(|entry| entry.progress == Progress::UnderWay) {
            self.lost_under_way.insert(hold.owner.clone());
        }
        let ended = self.end(hold, cause, effects);
        effects.push(ended);
    }

    /// A lease is lost: what to tell of it.
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

    /// Whether R2 holds.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for entry in self.leases.values() {
            let due = entry.ticket.map(super::timers::Ticket::at);
            assert!(due.is_some_and(|at| at <= entry.hold.valid_until()), "R2");
        }
    }
}

/// Why a lease that is over is not renewed.
fn over(hold: &Hold) -> Error {
    let lost = hold.loss().map(Error::Lost);
    lost.unwrap_or_else(|| StoreError::closed().into())
}

/// Puts a lease where it belongs among the timers (R2).
fn schedule(owner: &Owner, entry: &mut RenewalEntry, effects: &mut Effects) {
    if let Some(ticket) = entry.ticket.take() {
        effects.unset(ticket);
    }
    entry.ticket = Some(effects.wake(entry.next_event(), Due::Lease(owner.clone())));
}

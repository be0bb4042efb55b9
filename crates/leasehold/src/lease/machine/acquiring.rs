//! Acquires a lock from the store for a local queue.
//!
//! An owner asks, waits for a hint or the next poll, and asks again. At most one of its requests is under way.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Block, Busy, LockName, Mode, Owner, Reply, Step, Wait, block_for};

use super::ending::next_lease;
use super::{Machine, refuse, unset_alarm};
use crate::backoff::jittered;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::acquisition::{Acquisition, FirstRequest, Hint, Leftovers, SentRequest};
use crate::lease::effects::{Due, Effect, Effects, To};
use crate::lease::hold::Hold;
use crate::lease::queue::{QueueEntry, alike};
use crate::lease::settle::Settle;
use crate::lease::terms::Terms;
use crate::lease::waiter::Waiter;
use crate::store::Answer;

/// The step that asks for the lock.
fn acquire(owner: &Owner, terms: &Terms, block: Block, waits: bool) -> Step {
    Step::Acquire {
        owner: owner.clone(),
        mode: Mode::Exclusive,
        ttl: terms.ttl,
        block,
        wait: waits.then_some(Wait { listening: true }),
    }
}

fn send(step: Step, request: SentRequest, effects: &mut Effects) {
    effects.push(Effect::Send {
        name: request.name.clone(),
        step,
        to: To::Acquisition(request),
    });
}

impl Machine {
    /// Sends the first request of an owner.
    pub(super) fn send_first_request(
        name: &LockName,
        ask: FirstRequest,
        now: Moment,
        effects: &mut Effects,
    ) {
        let step = acquire(&ask.owner, &ask.terms, ask.block, ask.waits);
        let request = SentRequest {
            name: name.clone(),
            owner: ask.owner,
            ttl: ask.terms.ttl,
            sent: now,
            waits: ask.waits,
            left: Leftovers::default(),
        };
        send(step, request, effects);
    }

    /// A request for a lock comes in.
    pub(super) fn asked(
        &mut self,
        name: &LockName,
        mut entry: QueueEntry<Waiter>,
        now: Moment,
        effects: &mut Effects,
    ) {
        if self.is_closed {
            return refuse([entry], &StoreError::closed().into(), effects);
        }
        if let Some(limit) = entry.caller.limit {
            let due = Due::Limit(name.clone(), entry.id);
            entry.caller.alarm = Some(effects.wake(limit, due));
        }
        let (identity, clock) = (&self.identity, &self.clock);
        let owner = |terms: &Terms| identity.owner(&terms.note);
        let lost = |hold: &Arc<Hold>| hold.loss().is_some();
        let mut actions = self.queues.outlived(name, lost, owner, now);
        let ttl = entry.terms.ttl;
        let fits = |hold: &Arc<Hold>| hold.is_fit_to_hand_on(ttl, now);
        let entered = (self.queues).enter(
            name,
            entry,
            owner,
            now,
            fits,
            |entry, owner, fence, hold| next_lease(clock, entry, owner, fence, hold, now),
        );
        actions.extend(entered);
        self.execute(name, actions, None, now, effects);
    }

    /// A caller leaves. If no other one wants the lock, the acquisition ends.
    pub(super) fn leave(
        &mut self,
        name: &LockName,
        id: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<QueueEntry<Waiter>> {
        let (entry, acquisition) = self.queues.leave(name, id)?;
        unset_alarm(&entry.caller, effects);
        if let Some(acquisition) = acquisition {
            self.abandon(name, acquisition, now, effects);
        }
        Some(entry)
    }

    /// No caller wants the lock any more. The traces in the store are undone; with a request under way, when its answer arrives (W1).
    pub(super) fn abandon(
        &mut self,
        name: &LockName,
        acquisition: Acquisition,
        now: Moment,
        effects: &mut Effects,
    ) {
        if let Some(ticket) = acquisition.asks_at {
            effects.unset(ticket);
        }
        if acquisition.under_way.is_none() && acquisition.left.is_something() {
            let until = acquisition.left.unsettled_until;
            let work = Settle::of(
                name.clone(),
                acquisition.owner,
                acquisition.terms.ttl,
                until,
            );
            self.settlements.clean_up(work, now, effects);
        }
    }

    /// The store has answered a request for a lock.
    pub(super) fn acquire_answered(
        &mut self,
        mut request: SentRequest,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) {
        let left = &mut request.left;
        match &answer {
            Ok(Reply::Busy(_)) => left.queued |= request.waits,
            Ok(Reply::Held(_)) => left.queued = true,
            Err(error) if error.may_have_taken_effect => {
                left.unsettled_until = Some(now.after(request.ttl.get()));
            }
            Ok(_) | Err(_) => {}
        }
        let Some(acquisition) = self.queues.acquisition(&request.name, &request.owner) else {
            // A wake was faster, or no caller wants the lock any more. This request may have taken or queued the owner again.
            if matches!(answer, Ok(Reply::Held(_))) || answer.is_ok() && request.waits {
                left.unsettle(now);
            }
            return self.leave_behind(request, now, effects);
        };
        acquisition.ends(request.sent, answer.is_ok(), *left);
        match answer {
            Ok(Reply::Held(held)) => {
                if !self.taken(&request, &held, now, effects) {
                    let why = "the answer came after the lease had ended";
                    let (label, kind) = (self.about.store.to_string(), StoreErrorKind::TimedOut);
                    self.failed(request, StoreError::new(label, kind, why), now, effects);
                }
            }
            Ok(Reply::Busy(busy)) => self.busy(request, busy, now, effects),
            // A claim that came too late: back to the end of the queue.
            Ok(_) => self.ask(&request.name, &request.owner, now, effects),
            Err(error) => self.failed(request, error, now, effects),
        }
    }

    /// The lock is busy.
    fn busy(&mut self, mut request: SentRequest, busy: Busy, now: Moment, effects: &mut Effects) {
        let (name, owner) = (&request.name, &request.owner);
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        let is_first = acquisition.busy.is_none();
        let pause = if busy.ahead == 0 {
            busy.poll_after
        } else {
            jittered(busy.poll_after)
        };
        let told = is_first.then(|| busy.clone());
        acquisition.heard(request.sent, busy);
        let (actions, goes_on) = self.queues.busy(name);
        self.execute(name, actions, None, now, effects);
        if !goes_on {
            if request.waits {
                // The waiters have gone meanwhile.
                request.left.unsettle(now);
            }
            return self.leave_behind(request, now, effects);
        }
        if let Some(busy) = told {
            effects.push(Effect::InLine(name.clone(), busy));
            // A lock with waiters is worth showing.
            effects.push(Effect::Index(name.clone()));
        }
        if request.waits {
            self.listen(name, owner, pause, now, effects);
        } else {
            // A waiter has joined a caller that only tried.
            self.ask(name, owner, now, effects);
        }
        // Last, so no request waits for the watchers.
        self.tell_watchers(name, None, now, effects);
    }

    /// A request failed: retries it, or refuses all waiters of the queue.
    fn failed(
        &mut self,
        request: SentRequest,
        error: StoreError,
        now: Moment,
        effects: &mut Effects,
    ) {
        let (name, owner) = (&request.name, &request.owner);
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        match acquisition.failed(error.clone(), self.about.outage_timeout, now) {
            Err(error) => {
                let entries = self.queues.fail(name, owner);
                refuse(entries, &error.into(), effects);
                self.leave_behind(request, now, effects);
            }
            Ok(pause) => {
                if request.left.queued {
                    // Waiters wait for the end of the outage. Callers that only try are refused.
                    let (entries, goes_on) = self.queues.failing(name, owner);
                    refuse(entries, &error.into(), effects);
                    if !goes_on {
                        return self.leave_behind(request, now, effects);
                    }
                }
                self.listen(name, owner, pause, now, effects);
            }
        }
    }

    /// Waits for a hint, for at most `pause`.
    fn listen(
        &mut self,
        name: &LockName,
        owner: &Owner,
        pause: Duration,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        if let Some(hint) = acquisition.hint.take() {
            return self.hint(name, owner, hint, now, effects);
        }
        let due = Due::Ask(name.clone(), owner.clone());
        acquisition.asks_at = Some(effects.wake(now.after(pause), due));
    }

    /// Takes a hint, now or when the request under way is answered.
    pub(super) fn hint(
        &mut self,
        name: &LockName,
        owner: &Owner,
        hint: Hint,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        if acquisition.under_way.is_some() {
            acquisition.hint = acquisition.hint.max(Some(hint));
            return;
        }
        match hint {
            Hint::Claim => self.claim(name, owner, now, effects),
            Hint::Ask if acquisition.is_full() => self.claim(name, owner, now, effects),
            Hint::Ask => self.ask(name, owner, now, effects),
        }
    }

    /// Asks the store. Joins the store's queue if any caller waits.
    fn ask(&mut self, name: &LockName, owner: &Owner, now: Moment, effects: &mut Effects) {
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        let terms = acquisition.terms.clone();
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let waits = queue.waiting.iter().any(|entry| !entry.once);
        // The first request, without others in the way, was another one.
        let block = block_for(alike(&queue.waiting, &terms), true);
        let step = acquire(owner, &terms, block, waits);
        self.request(name, owner, step, waits, now, effects);
    }

    /// Claims a lock that may have been granted. Works also on a server that refuses new requests because its memory is full.
    fn claim(&mut self, name: &LockName, owner: &Owner, now: Moment, effects: &mut Effects) {
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        let step = Step::Extend {
            owner: owner.clone(),
            ttl: acquisition.terms.ttl,
            // Whatever it was granted is welcome.
            fence: None,
        };
        self.request(name, owner, step, true, now, effects);
    }

    fn request(
        &mut self,
        name: &LockName,
        owner: &Owner,
        step: Step,
        waits: bool,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(acquisition) = self.queues.acquisition(name, owner) else {
            return;
        };
        if let Some(ticket) = acquisition.asks_at.take() {
            effects.unset(ticket);
        }
        acquisition.sends(now);
        let request = SentRequest {
            name: name.clone(),
            owner: owner.clone(),
            ttl: acquisition.terms.ttl,
            sent: now,
            waits,
            left: acquisition.left,
        };
        send(step, request, effects);
    }

    /// The queue does not use this owner any more. Its traces in the store are undone, unless it became a lease (W1).
    fn leave_behind(&mut self, request: SentRequest, now: Moment, effects: &mut Effects) {
        let SentRequest {
            name, owner, ttl, ..
        } = request;
        let until = request.left.unsettled_until;
        if let Some(queue) = self.queues.owned_by(&name, &owner) {
            if let (Some(until), Some(hold)) = (until, queue.lease()) {
                // The release of this lease undoes them.
                hold.unsettle(until);
                self.renewals.request_may_be_late(&owner, ttl, now, effects);
            }
        } else if request.left.is_something() {
            let work = Settle::of(name, owner, ttl, until);
            self.settlements.clean_up(work, now, effects);
        }
    }
}

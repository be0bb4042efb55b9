//! Asking the store until it gives the lock, for a line of tasks that wait for it. Must never leave anything in the store that
//! nobody owns.
//!
//! An owner asks, listens for a hint until it is time to poll, and asks again. At most one of its requests is under way.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Block, Busy, LockName, Mode, Owner, Reply, Step, Wait, block_for};

use super::ending::next_lease;
use super::{Machine, refuse, unset_alarm};
use crate::backoff::jittered;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::asking::{Ask, Asking, Flight, Hint, Left};
use crate::lease::effects::{Due, Effect, Effects, To};
use crate::lease::hold::Hold;
use crate::lease::line::{Seat, alike};
use crate::lease::seat::Waiter;
use crate::lease::settle::Settle;
use crate::lease::terms::Terms;
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

fn send(step: Step, flight: Flight, effects: &mut Effects) {
    effects.push(Effect::Send {
        name: flight.name.clone(),
        step,
        to: To::Acquisition(flight),
    });
}

impl Machine {
    /// Sends the first request of an owner.
    pub(super) fn first(name: &LockName, ask: Ask, now: Moment, effects: &mut Effects) {
        let step = acquire(&ask.owner, &ask.terms, ask.block, ask.waits);
        let flight = Flight {
            name: name.clone(),
            owner: ask.owner,
            ttl: ask.terms.ttl,
            sent: now,
            waits: ask.waits,
            left: Left::default(),
        };
        send(step, flight, effects);
    }

    /// A request for a lock comes in.
    pub(super) fn asked(
        &mut self,
        name: &LockName,
        mut seat: Seat<Waiter>,
        now: Moment,
        effects: &mut Effects,
    ) {
        if self.is_closed {
            return refuse([seat], &StoreError::closed().into(), effects);
        }
        if let Some(limit) = seat.caller.limit {
            let due = Due::Limit(name.clone(), seat.id);
            seat.caller.alarm = Some(effects.wake(limit, due));
        }
        let (identity, clock) = (&self.identity, &self.clock);
        let owner = |terms: &Terms| identity.owner(&terms.note);
        let lost = |hold: &Arc<Hold>| hold.loss().is_some();
        let mut todo = self.lines.outlived(name, lost, owner, now);
        let ttl = seat.terms.ttl;
        let fits = |hold: &Arc<Hold>| hold.is_fit_to_hand_on(ttl, now);
        let entered =
            (self.lines).enter(name, seat, owner, now, fits, |seat, owner, fence, hold| {
                next_lease(clock, seat, owner, fence, hold, now)
            });
        todo.extend(entered);
        self.perform(name, todo, None, now, effects);
    }

    /// A request goes away. If nobody else wants the lock, asking for it ends.
    pub(super) fn leave(
        &mut self,
        name: &LockName,
        id: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Seat<Waiter>> {
        let (seat, asking) = self.lines.leave(name, id)?;
        unset_alarm(&seat.caller, effects);
        if let Some(asking) = asking {
            self.abandon(name, asking, now, effects);
        }
        Some(seat)
    }

    /// Nobody wants the lock any more. What reached the store is undone; with a request under way, as soon as its answer says what did
    /// (W1).
    pub(super) fn abandon(
        &mut self,
        name: &LockName,
        asking: Asking,
        now: Moment,
        effects: &mut Effects,
    ) {
        if let Some(ticket) = asking.asks_at {
            effects.unset(ticket);
        }
        if asking.under_way.is_none() && asking.left.is_something() {
            let until = asking.left.unsettled_until;
            let work = Settle::of(name.clone(), asking.owner, asking.terms.ttl, until);
            self.settlements.clean_up(work, now, effects);
        }
    }

    /// The store has answered a request for a lock.
    pub(super) fn asked_store(
        &mut self,
        mut flight: Flight,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) {
        let left = &mut flight.left;
        match &answer {
            Ok(Reply::Busy(_)) => left.queued |= flight.waits,
            Ok(Reply::Held(_)) => left.queued = true,
            Err(error) if error.may_have_taken_effect => {
                left.unsettled_until = Some(now.after(flight.ttl.get()));
            }
            Ok(_) | Err(_) => {}
        }
        let Some(asking) = self.lines.asking(&flight.name, &flight.owner) else {
            // A wake was faster, or nobody wants the lock any more. This may have taken it again, or queued its owner again.
            if matches!(answer, Ok(Reply::Held(_))) || answer.is_ok() && flight.waits {
                left.unsettle(now);
            }
            return self.leave_behind(flight, now, effects);
        };
        asking.ends(flight.sent, answer.is_ok(), *left);
        match answer {
            Ok(Reply::Held(held)) => {
                if !self.taken(&flight, &held, now, effects) {
                    let why = "the answer came after the lease had ended";
                    let (label, kind) = (self.about.store.to_string(), StoreErrorKind::TimedOut);
                    self.failed(flight, StoreError::new(label, kind, why), now, effects);
                }
            }
            Ok(Reply::Busy(busy)) => self.busy(flight, busy, now, effects),
            // A claim that came too late: back to the end of the line.
            Ok(_) => self.ask(&flight.name, &flight.owner, now, effects),
            Err(error) => self.failed(flight, error, now, effects),
        }
    }

    /// The lock is busy.
    fn busy(&mut self, mut flight: Flight, busy: Busy, now: Moment, effects: &mut Effects) {
        let (name, owner) = (&flight.name, &flight.owner);
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        let is_first = asking.busy.is_none();
        let pause = if busy.ahead == 0 {
            busy.poll_after
        } else {
            jittered(busy.poll_after)
        };
        let told = is_first.then(|| busy.clone());
        asking.heard(flight.sent, busy);
        let (todo, goes_on) = self.lines.busy(name);
        self.perform(name, todo, None, now, effects);
        if !goes_on {
            if flight.waits {
                // Those who waited have gone meanwhile.
                flight.left.unsettle(now);
            }
            return self.leave_behind(flight, now, effects);
        }
        if let Some(busy) = told {
            effects.push(Effect::InLine(name.clone(), busy));
            // A lock that someone waits for is worth showing.
            effects.push(Effect::Index(name.clone()));
        }
        if flight.waits {
            self.listen(name, owner, pause, now, effects);
        } else {
            // Somebody who waits has joined who did not.
            self.ask(name, owner, now, effects);
        }
        // Last, so that no request waits for those who watch.
        self.tell_watchers(name, None, now, effects);
    }

    /// A request failed: it is tried again, or everyone in line is told why not.
    fn failed(&mut self, flight: Flight, error: StoreError, now: Moment, effects: &mut Effects) {
        let (name, owner) = (&flight.name, &flight.owner);
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        match asking.failed(error.clone(), self.about.outage_timeout, now) {
            Err(error) => {
                let seats = self.lines.fail(name, owner);
                refuse(seats, &error.into(), effects);
                self.leave_behind(flight, now, effects);
            }
            Ok(pause) => {
                if flight.left.queued {
                    // In line one is patient; who does not wait is not.
                    let (seats, goes_on) = self.lines.failing(name, owner);
                    refuse(seats, &error.into(), effects);
                    if !goes_on {
                        return self.leave_behind(flight, now, effects);
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
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        if let Some(hint) = asking.hint.take() {
            return self.hint(name, owner, hint, now, effects);
        }
        let due = Due::Ask(name.clone(), owner.clone());
        asking.asks_at = Some(effects.wake(now.after(pause), due));
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
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        if asking.under_way.is_some() {
            asking.hint = asking.hint.max(Some(hint));
            return;
        }
        match hint {
            Hint::Claim => self.claim(name, owner, now, effects),
            Hint::Ask if asking.is_full() => self.claim(name, owner, now, effects),
            Hint::Ask => self.ask(name, owner, now, effects),
        }
    }

    /// Asks the store; to wait in its queue if anybody here waits.
    fn ask(&mut self, name: &LockName, owner: &Owner, now: Moment, effects: &mut Effects) {
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        let terms = asking.terms.clone();
        let Some(line) = self.lines.get_mut(name) else {
            return;
        };
        let waits = line.waiting.iter().any(|seat| !seat.once);
        // The first request, without others in the way, was another one.
        let block = block_for(alike(&line.waiting, &terms), true);
        let step = acquire(owner, &terms, block, waits);
        self.request(name, owner, (step, waits), now, effects);
    }

    /// Claims what may have been granted. Works where a new request would not: on a server whose memory is full.
    fn claim(&mut self, name: &LockName, owner: &Owner, now: Moment, effects: &mut Effects) {
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        let step = Step::Extend {
            owner: owner.clone(),
            ttl: asking.terms.ttl,
            // Whatever it was granted is welcome.
            fence: None,
        };
        self.request(name, owner, (step, true), now, effects);
    }

    fn request(
        &mut self,
        name: &LockName,
        owner: &Owner,
        (step, waits): (Step, bool),
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(asking) = self.lines.asking(name, owner) else {
            return;
        };
        if let Some(ticket) = asking.asks_at.take() {
            effects.unset(ticket);
        }
        asking.sends(now);
        let flight = Flight {
            name: name.clone(),
            owner: owner.clone(),
            ttl: asking.terms.ttl,
            sent: now,
            waits,
            left: asking.left,
        };
        send(step, flight, effects);
    }

    /// The line does not stand by this owner any more. What reached the store is undone, unless it was handed out (W1).
    fn leave_behind(&mut self, flight: Flight, now: Moment, effects: &mut Effects) {
        let Flight {
            name, owner, ttl, ..
        } = flight;
        let until = flight.left.unsettled_until;
        if let Some(line) = self.lines.owned_by(&name, &owner) {
            if let (Some(until), Some(hold)) = (until, line.lease()) {
                // The release of this lease sees to it.
                hold.unsettle(until);
                self.renewals.straggles(&owner, ttl, now, effects);
            }
        } else if flight.left.is_something() {
            let work = Settle::of(name, owner, ttl, until);
            self.settlements.clean_up(work, now, effects);
        }
    }
}

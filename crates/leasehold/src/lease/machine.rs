//! Everything that a client knows of its locks: it is told what has happened, and says what is to be done. Must never do I/O, wait, or
//! read a clock.
//!
//! Lines, renewals and settlements are its parts, which know nothing of each other. This is where an event is taken to the parts that
//! it concerns, and where one part's word becomes another's event.
//!
//! # Invariants
//!
//! - **E1** Every owner of this client that the store may know stands in a line, or has a request under way or a settlement; or is
//!   settled at the next connection.
//! - **E2** A wake for an owner that stands in no line begins a settlement: the lock was granted to someone who gave up. Not if it is to
//!   stay taken (U3).

mod acquiring;
mod answers;
mod ending;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, Owner};

use super::asking::Hint;
use super::effects::{Due, Effect, Effects, Parting, To};
use super::events::Event;
use super::hold::Hold;
use super::identity::Identity;
use super::line::{Do, Seat, Todo};
use super::lines::Lines;
use super::renewals::Renewals;
use super::seat::Waiter;
use super::settle::{Settle, Settlements};
use super::terms::Terms;
use crate::clock::{Clock, Moment};
use crate::error::Error;

/// The locks of a client.
pub(super) struct Machine {
    lines: Lines<Waiter, Arc<Hold>>,
    renewals: Renewals,
    settlements: Settlements,
    identity: Arc<Identity>,
    /// For those who look at a lease; the machine itself is told what time it is.
    clock: Clock,
    about: About,
    is_closed: bool,
}

/// Facts of the store that the machine needs.
pub(super) struct About {
    /// Its name in errors.
    pub(super) store: Arc<str>,
    /// How long a waiter in line puts up with it when it does not answer.
    pub(super) outage_timeout: Duration,
}

impl Machine {
    pub(super) fn new(about: About, identity: Arc<Identity>, clock: Clock) -> Self {
        Self {
            lines: Lines::default(),
            renewals: Renewals::new(about.store.clone()),
            settlements: Settlements::default(),
            identity,
            clock,
            about,
            is_closed: false,
        }
    }

    /// Something has happened, at `now` or a moment before.
    pub(super) fn handle(&mut self, now: Moment, event: Event, effects: &mut Effects) {
        match event {
            Event::Asked(name, seat) => self.asked(&name, seat, now, effects),
            Event::Left(name, id) => {
                if let Some(seat) = self.leave(&name, id, now, effects) {
                    effects.push(Effect::Gone(seat.caller));
                }
            }
            Event::Deaf(name, id) => {
                if let Some(seat) = self.seat(&name, id) {
                    seat.caller.stop_watching();
                }
            }
            Event::Answered(to, answer) => match to {
                To::Acquisition(flight) => self.asked_store(flight, answer, now, effects),
                To::Renewal(renewal) => self.renewed(renewal, answer, now, effects),
                To::Settlement(owner, number) => {
                    let to = (&owner, number);
                    self.settlements.answered(to, answer, now, effects);
                }
            },
            Event::Noticed(notice) => self.noticed(notice, now, effects),
            Event::Extended(owner, ttl, caller) => {
                self.renewals.extend(&owner, ttl, caller, now, effects);
                self.tell_lines(now, effects);
            }
            Event::Released(release) => self.released(release, now, effects),
            Event::Undone(work) => self.settlements.begin(work, now, effects),
            Event::Passed => {
                if let Some(due) = effects.pop(now) {
                    self.due(due, now, effects);
                }
            }
            Event::Closed => self.close(now, effects),
        }
        #[cfg(test)]
        self.check();
    }

    /// Whether a release is to be repeated some time: then somebody has to wait for it.
    pub(super) fn is_waiting(&self) -> bool {
        self.settlements.is_waiting()
    }

    /// The leases that were out or idle, when nobody is left who could want anything.
    pub(super) fn leases(&mut self) -> Vec<(LockName, Owner)> {
        let leases = self.lines.close().leases;
        let leases = leases.into_iter().map(|(name, owner, _)| (name, owner));
        leases.collect()
    }

    fn due(&mut self, due: Due, now: Moment, effects: &mut Effects) {
        match due {
            Due::Ask(name, owner) => self.hint(&name, &owner, Hint::Ask, now, effects),
            Due::Lease(owner) => {
                self.renewals.due(&owner, now, effects);
                self.tell_lines(now, effects);
            }
            Due::Limit(name, id) => self.limit_passed(&name, id, now, effects),
            Due::Idle(name) => {
                let todo = self.lines.tidy(&name, now);
                self.perform(&name, todo, None, now, effects);
            }
            Due::Settlement(owner) => self.settlements.due(&owner, now, effects),
        }
    }

    /// Does what a line wants done. The first release is the one of the lease whose use ends.
    fn perform(
        &mut self,
        name: &LockName,
        todo: Todo<Waiter, Arc<Hold>>,
        mut parting: Option<Parting>,
        now: Moment,
        effects: &mut Effects,
    ) {
        for what in todo {
            match what {
                Do::Ask(ask) => Self::first(name, ask, now, effects),
                Do::Grant {
                    seat,
                    lease,
                    handed_on,
                } => self.grant(seat, lease, handed_on, now, effects),
                Do::Busy(seat) => {
                    unset_alarm(&seat.caller, effects);
                    effects.push(Effect::Busy(seat.caller));
                }
                Do::Waits(id) => self.tell_watchers(name, Some(id), now, effects),
                Do::Release { owner, lease } => {
                    self.give_up(name, owner, lease, parting.take(), now, effects);
                }
                Do::Undo {
                    owner,
                    ttl,
                    unsettled_until,
                } => {
                    let work = Settle::of(name.clone(), owner, ttl, unsettled_until);
                    self.settlements.clean_up(work, now, effects);
                }
                Do::Fail(seat, error) => refuse([seat], &error.into(), effects),
                Do::Linger(until) => drop(effects.wake(until, Due::Idle(name.clone()))),
            }
        }
        if let Some(parting) = parting {
            // It was handed on, or is idle: the store need not know.
            effects.push(Effect::Released(parting, Ok(())));
        }
        self.tell_lines(now, effects);
    }

    fn grant(
        &mut self,
        seat: Seat<Waiter>,
        hold: Arc<Hold>,
        handed_on: bool,
        now: Moment,
        effects: &mut Effects,
    ) {
        unset_alarm(&seat.caller, effects);
        if handed_on {
            self.renewals.hand_on(&hold, seat.terms.ttl, now, effects);
        } else {
            self.renewals.keep(&hold, now, effects);
        }
        effects.push(Effect::Grant(seat.caller, hold));
    }

    /// Leases were lost: who waits here does not wait for their users to notice.
    fn tell_lines(&mut self, now: Moment, effects: &mut Effects) {
        for hold in self.renewals.take_lost() {
            let identity = &self.identity;
            let owner = |terms: &Terms| identity.owner(&terms.note);
            let todo = self.lines.lost(&hold.name, &hold.owner, owner, now);
            self.perform(&hold.name, todo, None, now, effects);
        }
    }

    /// Calls those who watch the waiting: all in line, or one.
    fn tell_watchers(
        &mut self,
        name: &LockName,
        only: Option<u64>,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(line) = self.lines.get_mut(name) else {
            return;
        };
        for (at, seat) in line.waiting.iter().enumerate() {
            if only.is_none_or(|id| id == seat.id)
                && let Some(told) = seat.caller.watch(&line.turn, at, now)
            {
                effects.push(Effect::Watch(name.clone(), seat.id, told));
            }
        }
    }

    fn seat(&mut self, name: &LockName, id: u64) -> Option<&mut Seat<Waiter>> {
        let waiting: &mut VecDeque<_> = &mut self.lines.get_mut(name)?.waiting;
        waiting.iter_mut().find(|seat| seat.id == id)
    }

    #[cfg(test)]
    fn check(&self) {
        self.lines.check(|hold| hold.is_lost());
        self.renewals.check();
    }

    /// Whether nothing is left of any lock: no line, and no lease.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.renewals.len() == 0
    }

    /// Whether an owner is being settled.
    #[cfg(test)]
    pub(super) fn is_settling(&self) -> bool {
        !self.settlements.is_empty()
    }

    /// Whether this owner is known to it (E1), requests under way aside.
    #[cfg(test)]
    pub(super) fn knows(&mut self, name: &LockName, owner: &Owner) -> bool {
        self.lines.asking(name, owner).is_some()
            || self.lines.owned_by(name, owner).is_some()
            || self.settlements.knows(owner)
    }

    /// How many leases there are.
    #[cfg(test)]
    pub(super) fn leases_kept(&self) -> usize {
        self.renewals.len()
    }

    /// A lease is handed on that was made a while ago.
    #[cfg(test)]
    pub(super) fn hands_on(&mut self, hold: &Arc<Hold>, now: Moment, effects: &mut Effects) {
        self.renewals.hand_on(hold, hold.ttl, now, effects);
        self.tell_lines(now, effects);
    }
}

/// Tells those who wait why they get no lease.
fn refuse(seats: impl IntoIterator<Item = Seat<Waiter>>, error: &Error, effects: &mut Effects) {
    for seat in seats {
        unset_alarm(&seat.caller, effects);
        effects.push(Effect::Refuse(seat.caller, Box::new(error.clone())));
    }
}

fn unset_alarm(waiter: &Waiter, effects: &mut Effects) {
    if let Some(alarm) = waiter.alarm {
        effects.unset(alarm);
    }
}

//! The state machine of a client: takes events, and returns effects. It does no I/O and never waits. The time comes
//! with each event; only a lease reads the clock itself, to say whether it is lost (L3).
//!
//! Its parts are the local queues, the renewals and the settlements. They do not know each other. The machine passes an event to the parts
//! that it concerns, and the output of one part to another part.
//!
//! # Invariants
//!
//! - **E1** Each owner of this client that the store may know is in a queue, has a request under way or a settlement, or is settled at the
//!   next connection.
//! - **E2** A wake for an owner that is in no queue begins a settlement, since the lock was granted to a caller that had gone. Not if the
//!   lock is to stay taken (U3).

mod acquiring;
mod answers;
mod ending;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, Owner};

use super::acquisition::Hint;
use super::effects::{Due, Effect, Effects, PendingRelease, To};
use super::events::Event;
use super::hold::Hold;
use super::identity::Identity;
use super::queue::{Action, Actions, QueueEntry};
use super::queues::LocalQueues;
use super::renewals::Renewals;
use super::settle::{Settle, Settlements};
use super::terms::Terms;
use super::waiter::Waiter;
use crate::clock::{Clock, Moment};
use crate::error::Error;

/// The locks of a client.
pub(super) struct Machine {
    queues: LocalQueues<Waiter, Arc<Hold>>,
    renewals: Renewals,
    settlements: Settlements,
    identity: Arc<Identity>,
    /// For the holds. The machine itself gets the time as an argument.
    clock: Clock,
    about: About,
    is_closed: bool,
}

/// Facts of the store that the machine needs.
pub(super) struct About {
    /// Its name in errors.
    pub(super) store: Arc<str>,
    /// See [`ClientBuilder::outage_timeout`](crate::ClientBuilder::outage_timeout).
    pub(super) outage_timeout: Duration,
    /// See [`ClientBuilder::request_timeout`](crate::ClientBuilder::request_timeout).
    pub(super) request_timeout: Duration,
}

impl Machine {
    pub(super) fn new(about: About, identity: Arc<Identity>, clock: Clock) -> Self {
        Self {
            queues: LocalQueues::default(),
            renewals: Renewals::new(about.store.clone()),
            settlements: Settlements::default(),
            identity,
            clock,
            about,
            is_closed: false,
        }
    }

    /// Handles an event that happened at `now` or a moment before.
    pub(super) fn handle(&mut self, now: Moment, event: Event, effects: &mut Effects) {
        match event {
            Event::Asked(name, entry) => self.asked(&name, entry, now, effects),
            Event::Left(name, id) => {
                if let Some(entry) = self.leave(&name, id, now, effects) {
                    effects.push(Effect::Gone(entry.caller));
                }
            }
            Event::Deaf(name, id) => {
                if let Some(entry) = self.entry(&name, id) {
                    entry.caller.stop_watching();
                }
            }
            Event::Answered(to, answer) => match to {
                To::Acquisition(request) => self.acquire_answered(request, answer, now, effects),
                To::Renewal(renewal) => self.renewed(renewal, answer, now, effects),
                To::Settlement(owner, number) => {
                    self.settlements
                        .answered(&owner, number, answer, now, effects);
                }
            },
            Event::Noticed(notice) => self.noticed(notice, now, effects),
            Event::Extended(owner, ttl, caller) => {
                self.renewals.extend(&owner, ttl, caller, now, effects);
                self.tell_queues(now, effects);
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

    /// Whether a release has to be repeated later. Then `Client::close` has to wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.settlements.is_waiting()
    }

    /// The held and idle leases, when the client has no users any more.
    pub(super) fn leases(&mut self) -> Vec<(LockName, Owner)> {
        let leases = self.queues.close().leases;
        let leases = leases.into_iter().map(|(name, owner, _)| (name, owner));
        leases.collect()
    }

    fn due(&mut self, due: Due, now: Moment, effects: &mut Effects) {
        match due {
            Due::Ask(name, owner) => self.hint(&name, &owner, Hint::Ask, now, effects),
            Due::Lease(owner) => {
                self.renewals.due(&owner, now, effects);
                self.tell_queues(now, effects);
            }
            Due::Limit(name, id) => self.limit_passed(&name, id, now, effects),
            Due::Idle(name) => {
                let actions = self.queues.tidy(&name, now);
                self.execute(&name, actions, None, now, effects);
            }
            Due::Settlement(owner) => self.settlements.due(&owner, now, effects),
        }
    }

    /// Executes the actions of a queue. The first release is the one of the lease whose use ends.
    fn execute(
        &mut self,
        name: &LockName,
        actions: Actions<Waiter, Arc<Hold>>,
        mut release: Option<PendingRelease>,
        now: Moment,
        effects: &mut Effects,
    ) {
        for what in actions {
            match what {
                Action::Ask(ask) => Self::send_first_request(name, ask, now, effects),
                Action::Grant {
                    entry,
                    lease,
                    handed_on,
                } => self.grant(entry, lease, handed_on, now, effects),
                Action::Busy(entry) => {
                    unset_alarm(&entry.caller, effects);
                    effects.push(Effect::Busy(entry.caller));
                }
                Action::Waits(id) => self.tell_watchers(name, Some(id), now, effects),
                Action::Release { owner, lease } => {
                    self.give_up(name, owner, lease, release.take(), now, effects);
                }
                Action::Undo {
                    owner,
                    ttl,
                    unsettled_until,
                } => {
                    let work = Settle::of(name.clone(), owner, ttl, unsettled_until);
                    self.settlements.clean_up(work, now, effects);
                }
                Action::Fail(entry, error) => refuse([entry], &error.into(), effects),
                Action::Linger(until) => drop(effects.wake(until, Due::Idle(name.clone()))),
            }
        }
        if let Some(release) = release {
            // The lock was handed on, or is idle: no request is needed.
            effects.push(Effect::Released(release, Ok(())));
        }
        self.tell_queues(now, effects);
    }

    fn grant(
        &mut self,
        entry: QueueEntry<Waiter>,
        hold: Arc<Hold>,
        handed_on: bool,
        now: Moment,
        effects: &mut Effects,
    ) {
        unset_alarm(&entry.caller, effects);
        if handed_on {
            self.renewals.hand_on(&hold, entry.terms.ttl, now, effects);
        } else {
            self.renewals.keep(&hold, now, effects);
        }
        effects.push(Effect::Grant(entry.caller, hold));
    }

    /// Leases were lost: the next waiter does not wait until their users notice.
    fn tell_queues(&mut self, now: Moment, effects: &mut Effects) {
        for hold in self.renewals.take_lost() {
            let identity = &self.identity;
            let owner = |terms: &Terms| identity.owner(&terms.note);
            let actions = self.queues.lost(&hold.name, &hold.owner, owner, now);
            self.execute(&hold.name, actions, None, now, effects);
        }
    }

    /// Calls `on_wait` of all waiters of a queue, or of one.
    fn tell_watchers(
        &mut self,
        name: &LockName,
        only: Option<u64>,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        for (at, entry) in queue.waiting.iter().enumerate() {
            if only.is_none_or(|id| id == entry.id)
                && let Some(told) = entry.caller.watch(&queue.state, at, now)
            {
                effects.push(Effect::Watch(name.clone(), entry.id, told));
            }
        }
    }

    fn entry(&mut self, name: &LockName, id: u64) -> Option<&mut QueueEntry<Waiter>> {
        let waiting: &mut VecDeque<_> = &mut self.queues.get_mut(name)?.waiting;
        waiting.iter_mut().find(|entry| entry.id == id)
    }

    #[cfg(test)]
    fn check(&self) {
        self.queues.check(|hold| hold.is_lost());
        self.renewals.check();
    }

    /// Whether there is no queue and no lease.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.renewals.len() == 0
    }

    /// Whether an owner is being settled.
    #[cfg(test)]
    pub(super) fn is_settling(&self) -> bool {
        !self.settlements.is_empty()
    }

    /// Whether this owner is known to it (E1), requests under way aside.
    #[cfg(test)]
    pub(super) fn knows(&mut self, name: &LockName, owner: &Owner) -> bool {
        self.queues.acquisition(name, owner).is_some()
            || self.queues.owned_by(name, owner).is_some()
            || self.settlements.knows(owner)
    }

    /// How many leases there are.
    #[cfg(test)]
    pub(super) fn leases_kept(&self) -> usize {
        self.renewals.len()
    }

    /// Hands on a lease that was made a while ago.
    #[cfg(test)]
    pub(super) fn hands_on(&mut self, hold: &Arc<Hold>, now: Moment, effects: &mut Effects) {
        self.renewals.hand_on(hold, hold.ttl, now, effects);
        self.tell_queues(now, effects);
    }
}

/// Tells these waiters why they get no lease.
fn refuse(
    entries: impl IntoIterator<Item = QueueEntry<Waiter>>,
    error: &Error,
    effects: &mut Effects,
) {
    for entry in entries {
        unset_alarm(&entry.caller, effects);
        effects.push(Effect::Refuse(entry.caller, Box::new(error.clone())));
    }
}

fn unset_alarm(waiter: &Waiter, effects: &mut Effects) {
    if let Some(alarm) = waiter.alarm {
        effects.unset(alarm);
    }
}

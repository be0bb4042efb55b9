//! Effects: the machine's output, in order. The engine executes them after the machine is unlocked (E3).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Busy, LockName, Owner, Step, Ttl};
use tokio::sync::oneshot;

use super::hold::Hold;
use super::keeper::ExtendReply;
use super::timers::{NextTimer, Ticket, Timers};
use super::waiter::{OnWaitCall, Waiter};
use crate::clock::Moment;
use crate::error::{Error, Lost};
pub(super) use crate::store::To;
use crate::telemetry::{Ended, Observation, Said, Telemetry};

/// An action for the engine.
pub(super) enum Effect {
    /// Send a step to the store.
    Send { name: LockName, step: Step, to: To },
    /// Deliver the lease to this waiter.
    Grant(Waiter, Arc<Hold>),
    /// Tell this waiter that the lock is busy.
    Busy(Waiter),
    /// Tell this waiter why it gets no lease.
    Refuse(Waiter, Box<Error>),
    /// Drop a waiter that left by itself.
    Gone(Waiter),
    /// Call the `on_wait` of the request with this number.
    Watch(LockName, u64, OnWaitCall),
    /// Put the name into the index.
    Index(LockName),
    /// Answer the callers of `extend`.
    Extended(Vec<ExtendReply>, Result<(), Error>),
    /// Tell the user of a lease how its release went.
    Released(PendingRelease, Result<(), Error>),
    /// The use of a lease is over: notify its watchers and telemetry.
    Ended(Arc<Hold>, Option<Ended>),
    /// Drop the callers of `extend`: the lease is over, and its hold knows why.
    Forgotten(Vec<ExtendReply>),
    /// For telemetry: a renewal was answered after this time.
    Renewed(Arc<Hold>, Duration, Said),
    /// For telemetry: the lock is busy.
    InLine(LockName, Box<Busy>),
}

/// A timer.
#[derive(Debug)]
pub(super) enum Due {
    /// The next poll of this owner.
    Ask(Owner),
    /// A renewal or a deadline of this owner's lease.
    Lease(Owner),
    /// The time limit of a request. In a box, since nearly all timers of a busy client are of leases.
    Limit(Box<(LockName, u64)>),
    /// The check of this owner's idle lock.
    Idle(Owner),
    /// The next release of this owner.
    Settlement(Owner),
}

impl Due {
    /// Whether the timer must fire at once when a suspended host resumes. A poll or a retry may be late.
    fn is_precise(&self) -> bool {
        match self {
            Self::Lease(_) | Self::Limit(_) | Self::Idle(_) => true,
            Self::Ask(_) | Self::Settlement(_) => false,
        }
    }
}

/// Effects and timers.
#[derive(Default)]
pub(super) struct Effects {
    at_once: Vec<Effect>,
    later: Timers<Due>,
    /// How many timers are precise.
    precise: usize,
    /// The earliest timer added since [`Effects::take_added`].
    added: Option<NextTimer>,
}

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.at_once.push(effect);
    }

    /// Adds a timer.
    pub(super) fn wake(&mut self, at: Moment, due: Due) -> Ticket {
        let next = NextTimer {
            at,
            is_precise: due.is_precise(),
        };
        self.precise += usize::from(next.is_precise);
        self.added = Some(self.added.map_or(next, |added| added.and(next)));
        self.later.add(at, due)
    }

    /// Removes a timer, if it has not fired.
    pub(super) fn unset(&mut self, ticket: Ticket) {
        let due = self.later.remove(ticket);
        self.uncount(due.as_ref());
    }

    /// Takes out the first timer that is due at `now`.
    pub(super) fn pop(&mut self, now: Moment) -> Option<Due> {
        let due = self.later.pop(now);
        self.uncount(due.as_ref());
        due
    }

    fn uncount(&mut self, gone: Option<&Due>) {
        self.precise -= usize::from(gone.is_some_and(Due::is_precise));
    }

    /// When the first timer is due, and whether any timer is precise.
    pub(super) fn next(&self) -> Option<NextTimer> {
        let at = self.later.first()?;
        let is_precise = self.precise > 0;
        Some(NextTimer { at, is_precise })
    }

    /// The earliest timer added since the last call.
    pub(super) fn take_added(&mut self) -> Option<NextTimer> {
        self.added.take()
    }

    /// Uses `room` as the empty list of effects.
    pub(super) fn make_room(&mut self, room: Vec<Effect>) {
        // Not if a panic has left effects here.
        if self.at_once.is_empty() {
            self.at_once = room;
        }
    }

    /// Takes out the effects.
    pub(super) fn take(&mut self) -> Vec<Effect> {
        mem::take(&mut self.at_once)
    }
}

/// The channel for the result of a release.
pub(super) type ReleaseReply = oneshot::Sender<Result<(), Error>>;

/// A lease whose use has ended, and the caller that waits for the result of the release.
pub(super) struct PendingRelease {
    pub(super) hold: Arc<Hold>,
    /// For how long the lock is to stay taken.
    pub(super) keep: Option<Ttl>,
    /// The loss, if the lease was lost before.
    pub(super) lost: Option<Box<Lost>>,
    pub(super) verdict: Option<ReleaseReply>,
}

impl PendingRelease {
    pub(super) fn tell(self, telemetry: &Telemetry, result: Result<(), Error>) {
        telemetry.observe(Observation::Released {
            lock: self.hold.name.as_str(),
            fence: self.hold.fenced(),
            result: &result,
            was_lost: self.lost.is_some(),
        });
        if let Some(verdict) = self.verdict {
            // The caller may have stopped listening; the release counts all the same.
            drop(verdict.send(result));
        }
    }
}

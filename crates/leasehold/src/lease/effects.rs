//! Effects: the machine's output, in order. Nobody carries one out while the machine is locked (E3).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Busy, LockName, Owner, Step, Ttl};
use tokio::sync::oneshot;

use super::acquisition::SentRequest;
use super::hold::Hold;
use super::renewal::Renewal;
use super::renewal_entry::ExtendReply;
use super::timers::{Next, Ticket, Timers};
use super::waiter::{OnWaitCall, Waiter};
use crate::clock::Moment;
use crate::error::{Error, Lost};
use crate::telemetry::{Ended, Said, Telemetry};

/// Something that is to be done.
pub(super) enum Effect {
    /// Send a step to the store.
    Send { name: LockName, step: Step, to: To },
    /// The lease is this one's.
    Grant(Waiter, Arc<Hold>),
    /// Tell it that the lock is busy.
    Busy(Waiter),
    /// Tell it why it gets no lease.
    Refuse(Waiter, Box<Error>),
    /// It went away by itself.
    Gone(Waiter),
    /// Call the `on_wait` of the request with this number.
    Watch(LockName, u64, OnWaitCall),
    /// Put the name into the index.
    Index(LockName),
    /// Tell those who renewed by hand.
    Extended(Vec<ExtendReply>, Result<(), Error>),
    /// Tell the user of a lease how its release went.
    Released(PendingRelease, Result<(), Error>),
    /// The use of a lease is over: tell those who wait for that, and whoever watches.
    Ended(Arc<Hold>, Ended),
    /// Drop those who renewed by hand: the lease is over, and knows why.
    Forgotten(Vec<ExtendReply>),
    /// For whoever watches: a renewal was answered after this time.
    Renewed(Arc<Hold>, Duration, Said),
    /// For whoever watches: the lock is busy.
    InLine(LockName, Busy),
}

/// The part of the machine that sent a step: the answer goes there.
#[derive(Debug)]
pub(super) enum To {
    /// A request for a lock.
    Acquisition(SentRequest),
    /// A renewal.
    Renewal(Renewal),
    /// The release of this number in the settlement of this owner.
    Settlement(Owner, u32),
}

/// Something that time brings.
#[derive(Debug)]
pub(super) enum Due {
    /// This owner asks again.
    Ask(LockName, Owner),
    /// A renewal or a deadline of this owner's lease.
    Lease(Owner),
    /// The time limit of a request.
    Limit(LockName, u64),
    /// A lock that may be idle for too long.
    Idle(LockName),
    /// The next release of this owner.
    Settlement(Owner),
}

impl Due {
    /// Whether a host that was suspended has to notice at once that it is due. Nothing depends on a poll or a retry.
    fn is_precise(&self) -> bool {
        match self {
            Self::Lease(_) | Self::Limit(..) | Self::Idle(_) => true,
            Self::Ask(..) | Self::Settlement(_) => false,
        }
    }
}

/// Effects for now, and timers for later.
#[derive(Default)]
pub(super) struct Effects {
    at_once: Vec<Effect>,
    later: Timers<Due>,
    /// How many timers are precise.
    precise: usize,
    /// The soonest timer that was added since somebody asked for it.
    added: Option<Next>,
}

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.at_once.push(effect);
    }

    /// `due` is due at `at`.
    pub(super) fn wake(&mut self, at: Moment, due: Due) -> Ticket {
        let next = Next {
            at,
            is_precise: due.is_precise(),
        };
        self.precise += usize::from(next.is_precise);
        self.added = Some(self.added.map_or(next, |added| added.and(next)));
        self.later.add(at, due)
    }

    /// It is not due any more, if it still was.
    pub(super) fn unset(&mut self, ticket: Ticket) {
        let due = self.later.remove(ticket);
        self.uncount(due.as_ref());
    }

    /// Takes out the first thing that is due at `now`.
    pub(super) fn pop(&mut self, now: Moment) -> Option<Due> {
        let due = self.later.pop(now);
        self.uncount(due.as_ref());
        due
    }

    fn uncount(&mut self, gone: Option<&Due>) {
        self.precise -= usize::from(gone.is_some_and(Due::is_precise));
    }

    /// When the first thing is due, and whether anything is precise.
    pub(super) fn next(&self) -> Option<Next> {
        let at = self.later.first()?;
        let is_precise = self.precise > 0;
        Some(Next { at, is_precise })
    }

    /// The soonest timer that was added since the last call.
    pub(super) fn take_added(&mut self) -> Option<Next> {
        self.added.take()
    }

    /// Takes this for what is to be done at once, which is nothing yet.
    pub(super) fn make_room(&mut self, room: Vec<Effect>) {
        self.at_once = room;
    }

    /// Takes out what is to be done at once.
    pub(super) fn take(&mut self) -> Vec<Effect> {
        mem::take(&mut self.at_once)
    }
}

/// Where the verdict of a release goes.
pub(super) type Verdict = oneshot::Sender<Result<(), Error>>;

/// A lease whose use has ended, and who wants to know how its release goes.
pub(super) struct PendingRelease {
    pub(super) hold: Arc<Hold>,
    /// For how long the lock is to stay taken.
    pub(super) keep: Option<Ttl>,
    /// It was lost before.
    pub(super) lost: Option<Lost>,
    pub(super) verdict: Option<Verdict>,
}

impl PendingRelease {
    pub(super) fn tell(self, telemetry: &Telemetry, result: Result<(), Error>) {
        let (name, fence) = (&self.hold.name, self.hold.fence);
        telemetry.given_back(name, fence, &result, self.lost.is_some());
        if let Some(verdict) = self.verdict {
            // The caller may have stopped listening; the release counts all the same.
            drop(verdict.send(result));
        }
    }
}

//! Removes the traces of an unused owner from the store. It repeats the release until the store has confirmed it, or until its time is
//! over; then once more at the next connection.
//!
//! A request with an unknown outcome may still be in a buffer: a stopped server executes it when it continues, with a full TTL, long after
//! the client gave up. So after an unknown outcome one confirmation is not enough: the release is repeated until a full TTL has passed
//! since the last such request. Owners are used once, so an extra release cannot affect another owner (core: C3).
//!
//! A settlement that is given up while the connection lasts leaves nothing behind. The client closes a connection that is silent for half a
//! second after an unanswered request, and a server answers in order. So a connection that lasts has executed or refused all earlier
//! requests, and their TTL has passed when the settlement is given up (`MARGIN`). A request that an older connection delivers later holds
//! the lock for at most its own TTL, unless the next connection comes first.
//!
//! # Invariants
//!
//! - **U1** An unused owner that may have left traces in the store has one settlement. It ends when the store has confirmed a release and no
//!   earlier request can arrive any more, or when its time is over.
//! - **U2** A release says *lost* only if no other release of this client can have freed the lock.
//! - **U3** No late request frees a lock that its user wants to stay taken.

mod settlement;

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use leasehold_core::{Owner, Reply};

pub(super) use self::settlement::Settle;
use self::settlement::{Settlement, Stage};
use super::effects::Effects;
use crate::clock::Moment;
use crate::store::Answer;

/// How many settlements that were not confirmed are remembered.
const ABANDONED: usize = 1024;

/// The least time that a kept owner is remembered: a program that has its token may have renewed it, and no request of this client takes
/// longer.
const KEPT: Duration = Duration::from_secs(60);

/// All settlements of a client. No I/O and no clock: each call reports an event and adds effects.
#[derive(Default)]
pub(super) struct Settlements {
    open: HashMap<Owner, Settlement>,
    /// How many of them wait for their next release.
    waiting: usize,
    /// Owners whose locks stay taken after the release (at-least-hold), and until when to remember that (U3).
    kept: HashMap<Owner, Moment>,
    /// Settlements that ended without an answer, oldest first. A server that was stopped for longer may still execute the requests that they
    /// should have undone, with a full TTL.
    abandoned: VecDeque<Settle>,
}

impl Settlements {
    /// Releases an owner, and repeats that until it is confirmed (U1).
    pub(super) fn begin(&mut self, work: Settle, now: Moment, effects: &mut Effects) {
        match work.keep {
            Some(keep) => {
                self.kept.retain(|_, until| *until > now);
                let until = now.after(keep.get().max(KEPT));
                self.kept.insert(work.owner.clone(), until);
            }
            None if self.kept.is_empty() => {}
            None => drop(self.kept.remove(&work.owner)),
        }
        let owner = work.owner.clone();
        let open = if let Some(open) = self.open.get_mut(&owner) {
            self.waiting -= usize::from(open.is_waiting());
            open.join(work, now);
            open
        } else {
            let settlement = Settlement::new(work, now);
            self.open.entry(owner).or_insert(settlement)
        };
        open.release(now, effects);
    }

    /// Releases an unused owner, unless its lock is to stay taken (U3).
    pub(super) fn clean_up(&mut self, work: Settle, now: Moment, effects: &mut Effects) {
        let is_kept = self.kept.get(&work.owner).is_some_and(|until| *until > now);
        if !is_kept {
            self.begin(work, now, effects);
        } else if let Some(open) = self.open.get_mut(&work.owner) {
            open.may_be_late(work.unsettled_until);
        }
    }

    /// The release of this number was answered.
    pub(super) fn answered(
        &mut self,
        owner: &Owner,
        number: u32,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(open) = self.open.get_mut(owner) else {
            return;
        };
        if matches!(&answer, Ok(reply) if *reply != Reply::Released) {
            // The owner held nothing that could be kept.
            self.kept.remove(owner);
        }
        self.waiting -= usize::from(open.is_waiting());
        match open.answered(number, answer, now, effects) {
            Stage::GoesOn => self.waiting += usize::from(open.is_waiting()),
            Stage::Settled => drop(self.open.remove(owner)),
            Stage::Abandoned(work) => {
                self.open.remove(owner);
                if let Some(work) = work {
                    if self.abandoned.len() >= ABANDONED {
                        self.abandoned.pop_front();
                    }
                    self.abandoned.push_back(work);
                }
            }
        }
    }

    /// It may be time for the next release of this owner.
    pub(super) fn due(&mut self, owner: &Owner, now: Moment, effects: &mut Effects) {
        if let Some(open) = self.open.get_mut(owner) {
            self.waiting -= usize::from(open.is_waiting());
            open.due(now, effects);
            self.waiting += usize::from(open.is_waiting());
        }
    }

    /// The store answers again: begins the abandoned settlements anew.
    pub(super) fn reconnected(&mut self, now: Moment, effects: &mut Effects) {
        for work in mem::take(&mut self.abandoned) {
            self.begin(work, now, effects);
        }
    }

    /// Whether this owner is being settled, or is to be at the next connection, or to stay taken (U3).
    #[cfg(test)]
    pub(super) fn knows(&self, owner: &Owner) -> bool {
        let left = |work: &Settle| work.owner == *owner;
        self.open.contains_key(owner)
            || self.kept.contains_key(owner)
            || self.abandoned.iter().any(left)
    }

    /// Whether a release is to be repeated some time.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether nothing is to be settled now.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.open.values().filter(|open| open.is_waiting());
        assert_eq!(waiting.count(), self.waiting);
        self.open.is_empty()
    }
}

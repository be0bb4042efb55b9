//! Undoing what reached the store. Must never stop before the store has confirmed, or time has; and what only time has, is
//! undone at the next connection.
//!
//! A request whose outcome is unknown can still be lying in a buffer: a stopped server carries it out when it goes on,
//! with a full TTL, long after the client gave up. So after an unknown outcome one confirmation is not enough: the
//! release is repeated until a full TTL has passed since the last such request. Owners are used once, so a release too
//! many can never hit anybody else (core: C3).
//!
//! A settlement that is given up while the connection lasts leaves nothing behind. A connection that is silent for half a second
//! after a request was not answered is closed, and a server answers in order. So a connection that lasts has carried out or refused
//! all that was sent over it before, and the TTL of that has passed when the settlement is given up (`MARGIN`). A request that an
//! older connection brings later than that holds the lock for its own TTL at most, unless the next connection comes first.
//!
//! # Invariants
//!
//! - **U1** An owner that may have left something in the store, and that nobody uses, has one settlement. It ends when the store has
//!   confirmed a release, and no request from before it can arrive any more; or when its time is over.
//! - **U2** A release says *lost* only if no other release of this client can have freed the lock.
//! - **U3** Nothing that is late frees a lock that its user wants to stay taken.

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

/// For how long an owner is known to be kept at least: whoever has its token may have renewed it meanwhile, and no request of
/// this client takes longer.
const KEPT: Duration = Duration::from_secs(60);

/// All settlements of a client. No I/O and no clock: each call says what has happened, and adds what is to be done.
#[derive(Default)]
pub(super) struct Settlements {
    open: HashMap<Owner, Settlement>,
    /// How many of them wait for their next release.
    waiting: usize,
    /// Owners that were released for later (at-least-hold), and until when that is worth knowing (U3).
    kept: HashMap<Owner, Moment>,
    /// Settlements that ended without an answer, first come first. A server that was stopped for longer than they tried may still
    /// carry out the requests that they are to undo, with a full TTL.
    abandoned: VecDeque<Settle>,
}

impl Settlements {
    /// Releases, and goes on until that is confirmed (U1).
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

    /// Releases an owner that nobody uses, unless its lock is to stay taken (U3).
    pub(super) fn clean_up(&mut self, work: Settle, now: Moment, effects: &mut Effects) {
        let is_kept = self.kept.get(&work.owner).is_some_and(|until| *until > now);
        if !is_kept {
            self.begin(work, now, effects);
        }
    }

    /// The release of this number was answered.
    pub(super) fn answered(
        &mut self,
        (owner, number): (&Owner, u32),
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(open) = self.open.get_mut(owner) else {
            return;
        };
        if matches!(&answer, Ok(reply) if *reply != Reply::Released) {
            // There was nothing to keep.
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

    /// The store is there again: what it may have done since nobody tried any more is undone.
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

//! A node's vote on a proposal.

use std::time::Duration;

use super::mark::{AHEAD, Mark, QuorumTerms};
use crate::fence::{Acceptable, Fence, Fences};
use crate::mode::Mode;
use crate::owner::Owner;
use crate::step::Busy;
use crate::time::Ttl;
use crate::turn::Turn;

/// A client's request to take a lock with fences of its own choice, or to raise the fences of its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The owner that asks; fresh for each acquisition.
    pub owner: Owner,
    /// The lease wanted; at most the longest TTL of the quorum.
    pub ttl: Ttl,
    /// The fences: exactly these, or no hold.
    pub fences: Fences,
    /// The terms of the client's quorum.
    pub terms: QuorumTerms,
}

/// A node's reply to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vote {
    /// The owner holds the lock with fences that begin here, for the TTL that it asked for. A late request of an earlier round gets
    /// the higher number of a later one.
    Held(Fence),
    /// The owner holds the lock with lower fences than it proposed, for the TTL that it asked for: the proposal is outside of these
    /// bounds.
    NotRaised(Acceptable),
    /// The lock is free, and the proposal is outside of these bounds. Nothing has changed.
    Behind(Acceptable),
    /// Another owner or program holds the lock.
    Busy(Busy),
    /// The node may have forgotten holds and fences. It gives no vote for this long.
    Quarantined(Duration),
    /// The node belongs to a quorum of other terms.
    OtherTerms(QuorumTerms),
}

/// [`AHEAD`] in microseconds.
const AHEAD_US: u64 = 1_000_000 * AHEAD.as_secs();

impl Turn<'_> {
    /// Grants the lock with exactly the proposed fences, raises the fences of the owner's hold to them, or changes neither.
    pub(crate) fn propose(&mut self, proposal: &Proposal, mark: &mut Option<Mark>) -> Vote {
        let Proposal {
            owner, ttl, fences, ..
        } = proposal;
        // Clients that count differently share no majority.
        if let Some(other) = mark.filter(|mark| mark.terms != proposal.terms) {
            return Vote::OtherTerms(other.terms);
        }
        self.advance(Some(owner));
        let wall_us = self.now.wall_us;
        let most_us = wall_us.saturating_add(AHEAD_US);
        if let Some(at) = self.holder(owner) {
            // A repeat, or a raise by the holder; never a way to take the lock (QR7).
            self.hold_until(at, *ttl);
            let held = &mut self.lock.holders[at].fences;
            if fences.first > held.first {
                if let Err(acceptable) = self.counter.accept(*fences, wall_us, most_us) {
                    return Vote::NotRaised(acceptable);
                }
                *held = *fences;
            }
            return Vote::Held(held.first);
        }
        let mark = mark.get_or_insert(Mark {
            terms: proposal.terms,
            made_at_ms: self.now.millis(),
        });
        // A counter that exists proves that the node remembers (QR8).
        if self.counter.is_lost()
            && let Some(left) = mark.quarantined_for(self.now)
        {
            return Vote::Quarantined(left);
        }
        if !self.admits(Mode::Exclusive) {
            let terms = (Mode::Exclusive, *ttl, fences.block);
            return Vote::Busy(self.refuse(owner, terms, None));
        }
        match self.counter.accept(*fences, mark.floor_us(), most_us) {
            Ok(()) => {
                self.grant_with(owner, (Mode::Exclusive, *ttl), *fences);
                Vote::Held(fences.first)
            }
            Err(acceptable) => Vote::Behind(acceptable),
        }
    }
}

//! A proposal to a node of a quorum: its terms, and the reasons for which it gets no vote. The rules are in [`crate::quorum`].

use std::time::Duration;

use crate::fence::{Acceptable, Fences};
use crate::owner::Owner;
use crate::time::Ttl;

/// How a waiter waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Whether its client is subscribed to wakes, so that a store may find it unreachable. A client that only polls says `false`.
    pub listening: bool,
}

/// The terms of a quorum. All of its clients must agree on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuorumTerms {
    /// How many nodes there are.
    pub nodes: u8,
    /// The longest TTL of a lease.
    pub longest_ttl: Ttl,
}

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
    /// Join or refresh the queue of this node when the lock is busy. A client waits at one node only, the lead.
    pub wait: Option<Wait>,
}

/// The reason why a proposal got no vote, or why a node refused another step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVote {
    /// The owner holds the lock with lower fences than it proposed, and no longer than before: the proposal is outside of these bounds.
    NotRaised(Acceptable),
    /// The lock is free, and the proposal is outside of these bounds.
    Behind(Acceptable),
    /// The node may have forgotten holds and fences. It gives no vote for this long.
    Quarantined(Duration),
    /// The node belongs to a quorum of other terms. It refuses each step.
    OtherTerms(QuorumTerms),
    /// The store is no node of a quorum.
    NotANode,
}

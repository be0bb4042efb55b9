//! The votes that each owner may have at each node, until they are given back or have expired (V1).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Fences, LockName, Owner, Ttl};

use super::attempt::Attempt;
use super::gather::Gather;
use crate::clock::Moment;

/// The fewest acquisitions between two sweeps. With more owners than this, as many as there are owners.
const SWEEP_EVERY: usize = 1_024;

/// How long an owner is remembered after its votes have expired: longer than any request takes.
const MEMORY: Duration = Duration::from_secs(60);

/// An owner and its votes.
pub(super) struct Record {
    pub(super) name: LockName,
    /// For each node, how many proposals it has not answered yet.
    pub(super) open: Vec<u32>,
    /// For each node, the fences of the votes that it may have given.
    pub(super) votes: Vec<Vec<Fence>>,
    pub(super) attempt: Option<Attempt>,
    /// The fences of the certificate, while the owner has one.
    pub(super) certified: Option<Fences>,
    /// It waits with the vote of the lead, and keeps its votes meanwhile.
    pub(super) keeps_votes: bool,
    /// The nodes that lack a vote for the certificate, as the last renewals found.
    pub(super) lacking: Vec<usize>,
    /// The lead has granted its vote to this waiter, with these fences.
    pub(super) granted: Option<Fences>,
    pub(super) release: Option<OwnerRelease>,
    /// When it may be forgotten.
    until: Moment,
}

/// A release that some nodes have not got yet (V2).
#[derive(Clone)]
pub(super) struct OwnerRelease {
    pub(super) keep: Option<Ttl>,
    pub(super) fence: Option<Fence>,
    pub(super) gather: Arc<Gather>,
}

impl Record {
    fn new(name: &LockName, nodes: usize, until: Moment) -> Self {
        Self {
            name: name.clone(),
            open: vec![0; nodes],
            votes: vec![Vec::new(); nodes],
            attempt: None,
            certified: None,
            keeps_votes: false,
            lacking: Vec::new(),
            granted: None,
            release: None,
            until,
        }
    }

    /// The node holds for this owner, with this fence or with a higher one of a later round.
    pub(super) fn has_vote(&mut self, node: usize, fence: Fence) {
        let votes = &mut self.votes[node];
        let highest = votes
            .iter()
            .copied()
            .max()
            .map_or(fence, |vote| vote.max(fence));
        *votes = vec![highest];
    }

    /// The node may hold for this owner, with this fence.
    pub(super) fn may_have_vote(&mut self, node: usize, fence: Fence) {
        self.votes[node].push(fence);
    }

    /// The fence of the hold at a node that granted the lock itself, with a higher fence than the certificate.
    pub(super) fn higher_at(&self, node: usize) -> Option<Fence> {
        let certified = self.certified?;
        match self.votes[node][..] {
            [vote] if vote > certified.last() => Some(vote),
            _ => None,
        }
    }

    /// The highest fence of this owner that is known.
    pub(super) fn highest(&self) -> Option<Fence> {
        let votes = self.votes.iter().flatten().copied();
        votes.chain(self.granted.map(Fences::last)).max()
    }

    /// Whether nothing of it is left at any node, nor on its way.
    fn is_empty(&self) -> bool {
        let is_idle = self.attempt.is_none() && self.certified.is_none() && self.granted.is_none();
        let is_open = self.open.iter().any(|open| *open > 0);
        is_idle && !is_open && (self.release.is_some() || self.votes.iter().all(Vec::is_empty))
    }
}

/// All owners with votes.
pub(super) struct Owners {
    nodes: usize,
    records: HashMap<Owner, Record>,
    to_sweep: usize,
}

impl Owners {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            records: HashMap::new(),
            to_sweep: SWEEP_EVERY,
        }
    }

    pub(super) fn get(&mut self, owner: &Owner) -> Option<&mut Record> {
        self.records.get_mut(owner)
    }

    /// The record of an owner, which is needed for `ttl` from now on.
    pub(super) fn entry(
        &mut self,
        owner: &Owner,
        name: &LockName,
        ttl: Duration,
        now: Moment,
    ) -> &mut Record {
        self.sweep_if_due(now);
        let until = now.after(ttl + MEMORY);
        let nodes = self.nodes;
        let record = self
            .records
            .entry(owner.clone())
            .or_insert_with(|| Record::new(name, nodes, until));
        record.until = record.until.max(until);
        record
    }

    /// Forgets an owner that has nothing left.
    pub(super) fn tidy(&mut self, owner: &Owner) {
        if self.records.get(owner).is_some_and(Record::is_empty) {
            self.records.remove(owner);
        }
    }

    /// Forgets the owners whose votes have expired: those of leases that another process took over.
    fn sweep_if_due(&mut self, now: Moment) {
        self.to_sweep -= 1;
        if self.to_sweep == 0 {
            let is_needed = |record: &Record| record.attempt.is_some() || record.until > now;
            self.records.retain(|_, record| is_needed(record));
            self.to_sweep = self.records.len().max(SWEEP_EVERY);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

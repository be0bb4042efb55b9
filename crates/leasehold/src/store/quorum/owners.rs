//! The votes that each owner may have at each node, until they are given back or have expired (V1).

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Fence, Fences, HolderIdentity, LockName, Owner, Step, Ttl};

use super::attempt::Attempt;
use super::effects::{NodeRenewal, VoteUndo};
use crate::clock::Moment;

/// The fewest acquisitions between two sweeps. With more owners than this, as many as there are owners.
const SWEEP_EVERY: usize = 1_024;

/// How long an owner is remembered after its votes have expired: longer than any request takes.
const MEMORY: Duration = Duration::from_secs(60);

/// The least time after which a renewal without an answer arrives no more (as in the keeper).
const LATE: Duration = Duration::from_secs(30);

/// An owner, and the lock that it wants or has.
#[derive(Clone, Copy)]
pub(super) struct Party<'a> {
    pub(super) owner: &'a Owner,
    pub(super) name: &'a LockName,
}

/// An owner and its votes.
pub(super) struct Record<C> {
    pub(super) name: LockName,
    pub(super) nodes: Vec<AtNode>,
    /// The longest TTL that it has asked for.
    pub(super) ttl: Duration,
    pub(super) attempt: Option<Attempt<C>>,
    /// It is a reader.
    pub(super) is_shared: bool,
    /// A reader that may stand in the queue of the lead. When it is granted the lock there, it claims the other votes as a reader.
    pub(super) waits_to_read: bool,
    /// The fences of the certificate, while the owner has one.
    pub(super) certified: Option<Fences>,
    /// It waits with the vote of the lead, and keeps its votes meanwhile.
    pub(super) keeps_votes: bool,
    /// The holder that a majority named when this waiter was last refused, with the vote of the lead.
    pub(super) behind: Option<HolderIdentity>,
    /// The lead has granted its vote to this waiter, with these fences.
    pub(super) granted: Option<Fences>,
    pub(super) back: VotesBack,
    pub(super) release: Option<OwnerRelease>,
    /// When it may be forgotten.
    until: Moment,
}

/// What a node may keep for an owner, and what is under way there.
#[derive(Debug, Clone, Default)]
pub(super) struct AtNode {
    /// How many proposals it has not answered yet.
    pub(super) open: u32,
    /// The fences of the votes that it may have given.
    pub(super) votes: Vec<Fence>,
    /// Until when a proposal without an answer may still reach it.
    pub(super) late_until: Option<Moment>,
    /// A renewal without an answer: until when it may still reach the node, and the TTL that the hold has then.
    pub(super) late_renewal: Option<(Moment, Ttl)>,
    /// A majority has granted or renewed the lease since this node lacks its vote, so that it may vote for a higher fence instead.
    pub(super) may_raise: bool,
    /// How many releases it has not answered yet.
    pub(super) releases: u32,
    /// Releases that it has answered before a proposal, with the numbers of the gatherings that still want an answer. They follow the
    /// proposal once more.
    pub(super) overtook: Vec<(Option<u64>, VoteUndo)>,
}

/// The votes of an owner that are being given back. Until that is done, no proposal may ask for one of them: it would be freed
/// afterwards (QR9).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VotesBack {
    count: u32,
    /// The highest of their fences.
    pub(super) highest: Option<Fence>,
}

impl VotesBack {
    pub(super) fn begin(&mut self, fence: Fence) {
        self.count += 1;
        self.highest = self.highest.max(Some(fence));
    }

    fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count == 0 {
            self.highest = None;
        }
    }
}

/// A release (V2).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerRelease {
    /// For so long the lock is kept taken.
    pub(super) keep: Option<Ttl>,
    pub(super) fence: Option<Fence>,
    /// The fences of the certificate, if the owner had one.
    pub(super) certified: Option<Fences>,
}

impl OwnerRelease {
    /// The release for a node. It knows the hold by the fence that it stores.
    pub(super) fn undo_at(self, node: &AtNode, party: Party<'_>, now: Moment) -> VoteUndo {
        let higher = node.higher_than(self.certified);
        let step = Step::Release {
            owner: party.owner.clone(),
            keep: self.keep,
            fence: self.fence.and(higher).or(self.fence),
        };
        VoteUndo::new(party.name, step, now)
    }
}

impl AtNode {
    /// The node holds for the owner, with this fence. A proposal without an answer may still raise it to a higher one.
    pub(super) fn has_vote(&mut self, fence: Fence) {
        self.votes.retain(|vote| *vote > fence);
        self.votes.push(fence);
    }

    /// A renewal for this TTL was not answered.
    pub(super) fn may_be_renewed_late(&mut self, ttl: Ttl, now: Moment) {
        let until = now.after(ttl.get().max(LATE));
        self.late_renewal = match self.late_renewal {
            Some((before, shorter)) if before > now => Some((before.max(until), shorter.min(ttl))),
            _ => Some((until, ttl)),
        };
    }

    /// The TTL to which a late renewal may cut this one short.
    pub(super) fn may_be_cut_to(&self, ttl: Ttl, now: Moment) -> Option<Ttl> {
        let (until, shorter) = self.late_renewal?;
        (until > now && shorter < ttl).then_some(shorter)
    }

    /// The fence of the hold, if the node holds with a higher one than the certificate.
    pub(super) fn higher_than(&self, certified: Option<Fences>) -> Option<Fence> {
        match self.votes[..] {
            [vote] if vote > certified?.last() => Some(vote),
            _ => None,
        }
    }
}

impl<C> Record<C> {
    fn new(name: &LockName, nodes: usize, until: Moment) -> Self {
        Self {
            name: name.clone(),
            nodes: vec![AtNode::default(); nodes],
            ttl: Duration::ZERO,
            attempt: None,
            is_shared: false,
            waits_to_read: false,
            certified: None,
            keeps_votes: false,
            behind: None,
            granted: None,
            back: VotesBack::default(),
            release: None,
            until,
        }
    }

    /// The node has not answered a proposal with this fence. It may vote for it now, or when the proposal arrives.
    pub(super) fn may_have_vote(&mut self, node: usize, fence: Fence, now: Moment) {
        let late_until = now.after(self.ttl);
        let node = &mut self.nodes[node];
        node.votes.push(fence);
        node.late_until = Some(late_until);
    }

    /// Whether a hold with this higher fence may be the vote for the lease that is renewed.
    pub(super) fn may_hold_by(&self, renewal: &NodeRenewal, higher: Fence) -> bool {
        let is_lease =
            |certified: Fences| renewal.lease.is_some_and(|lease| certified.contains(lease));
        // A lock that stays taken after its release is renewed by its token.
        let is_kept = self.release.is_none_or(|release| release.keep.is_some());
        let is_free = is_kept && Some(higher) > self.back.highest;
        is_free && self.certified.is_none_or(is_lease)
    }

    /// The highest fence of this owner that is known.
    pub(super) fn highest(&self) -> Option<Fence> {
        let votes = self.nodes.iter().flat_map(|node| &node.votes).copied();
        let granted = self.granted.map(Fences::last);
        votes.chain(granted).chain(self.back.highest).max()
    }

    /// Whether nothing of it is left at any node, nor on its way.
    fn is_empty(&self, now: Moment) -> bool {
        let is_idle = self.attempt.is_none() && self.certified.is_none() && self.granted.is_none();
        let is_idle = is_idle && self.behind.is_none() && !self.waits_to_read;
        let is_done = |node: &AtNode| {
            let is_late = node.late_until.is_some_and(|until| until > now);
            let is_free = self.release.is_some() || node.votes.is_empty();
            node.open == 0 && node.releases == 0 && !is_late && is_free
        };
        is_idle && self.back.count == 0 && self.nodes.iter().all(is_done)
    }
}

/// All owners with votes.
pub(super) struct Owners<C> {
    nodes: usize,
    records: HashMap<Owner, Record<C>>,
    to_sweep: usize,
}

impl<C> Owners<C> {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            records: HashMap::new(),
            to_sweep: SWEEP_EVERY,
        }
    }

    pub(super) fn get(&mut self, owner: &Owner) -> Option<&mut Record<C>> {
        self.records.get_mut(owner)
    }

    /// The record of an owner, which is needed for `ttl` from now on.
    pub(super) fn entry(
        &mut self,
        owner: &Owner,
        name: &LockName,
        ttl: Duration,
        now: Moment,
    ) -> &mut Record<C> {
        self.sweep_if_due(now);
        let until = now.after(ttl + MEMORY);
        let nodes = self.nodes;
        let record = self
            .records
            .entry(owner.clone())
            .or_insert_with(|| Record::new(name, nodes, until));
        record.until = record.until.max(until);
        record.ttl = record.ttl.max(ttl);
        record
    }

    /// All owners.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (&Owner, &mut Record<C>)> {
        self.records.iter_mut()
    }

    /// A node has got a release or a give-back of this owner.
    pub(super) fn has_taken_back(
        &mut self,
        owner: &Owner,
        node: usize,
        is_release: bool,
        now: Moment,
    ) {
        if let Some(record) = self.records.get_mut(owner) {
            if is_release {
                let releases = &mut record.nodes[node].releases;
                *releases = releases.saturating_sub(1);
            } else {
                record.back.end();
            }
        }
        self.tidy(owner, now);
    }

    /// Forgets an owner that has nothing left.
    pub(super) fn tidy(&mut self, owner: &Owner, now: Moment) {
        if (self.records.get(owner)).is_some_and(|record| record.is_empty(now)) {
            self.records.remove(owner);
        }
    }

    /// Forgets the owners whose votes have expired: those of leases that another process took over.
    fn sweep_if_due(&mut self, now: Moment) {
        self.to_sweep -= 1;
        if self.to_sweep == 0 {
            let is_needed = |record: &Record<C>| {
                record.attempt.is_some() || record.back.count > 0 || record.until > now
            };
            self.records.retain(|_, record| is_needed(record));
            self.to_sweep = self.records.len().max(SWEEP_EVERY);
        }
    }

    /// How many owners are under way or have votes. A grant that comes late is remembered besides, until the next sweep.
    #[cfg(test)]
    pub(super) fn unsettled(&self) -> usize {
        let is_unsettled = |record: &&Record<C>| {
            let has_votes = record.nodes.iter().any(|node| !node.votes.is_empty());
            let votes = has_votes && record.release.is_none();
            let is_open = record.nodes.iter().any(|node| node.open > 0);
            record.attempt.is_some() || record.certified.is_some() || votes || is_open
        };
        self.records.values().filter(is_unsettled).count()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

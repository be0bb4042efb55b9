//! The votes that each owner may have at each node, until they are given back or have expired (V1).

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::quorum::NoVote;
use leasehold_core::{
    Acceptable, Fence, Fences, HolderIdentity, HolderView, LockName, Owner, Reply,
};

use super::attempt::Attempt;
use crate::clock::Moment;
use crate::store::contract::Answer;

/// The fewest acquisitions between two sweeps. With more owners than this, as many as there are owners.
const SWEEP_EVERY: usize = 1_024;

/// How long an owner is remembered after its votes have expired: longer than any request takes.
const MEMORY: Duration = Duration::from_secs(60);

/// An owner, and the lock that it wants or has.
#[derive(Clone, Copy)]
pub(super) struct Party<'a> {
    pub(super) owner: &'a Owner,
    pub(super) name: &'a LockName,
}

/// An owner and its votes.
pub(super) struct Record<C> {
    pub(super) name: LockName,
    /// For each node, how many proposals it has not answered yet.
    pub(super) open: Vec<u32>,
    /// For each node, the fences of the votes that it may have given.
    pub(super) votes: Vec<Vec<Fence>>,
    /// For each node, until when a proposal without an answer may still reach it.
    pub(super) late_until: Vec<Option<Moment>>,
    /// The longest TTL that it has asked for.
    pub(super) ttl: Duration,
    pub(super) attempt: Option<Attempt<C>>,
    /// The fences of the certificate, while the owner has one.
    pub(super) certified: Option<Fences>,
    /// It waits with the vote of the lead, and keeps its votes meanwhile.
    pub(super) keeps_votes: bool,
    /// The nodes that lack a vote for the certificate, as the last renewals found.
    pub(super) lacking: Vec<usize>,
    /// For each node, the fences that it accepts, if those of the certificate are too low for it: its counter has gone on, or it has
    /// lost its memory.
    pub(super) beyond: Vec<Option<Acceptable>>,
    /// The lead has granted its vote to this waiter, with these fences.
    pub(super) granted: Option<Fences>,
    pub(super) back: VotesBack,
    pub(super) release: Option<OwnerRelease>,
    /// The nodes that its attempt asks later, since the release of another owner goes first.
    pub(super) waits_for: Vec<bool>,
    /// The nodes that it has asked for a vote.
    pub(super) asked: Vec<bool>,
    /// For each node, the attempts of other owners that follow the release there.
    next: Vec<Vec<(Owner, u64)>>,
    /// When it may be forgotten.
    until: Moment,
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

/// A release that some nodes have not got yet (V2).
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerRelease {
    /// Until then the lock is kept taken, whenever a node hears of it.
    pub(super) keep_until: Option<Moment>,
    pub(super) fence: Option<Fence>,
    /// The fences of the certificate, if the owner had one.
    pub(super) certified: Option<Fences>,
    /// Its answers are gathered under this number.
    pub(super) gathering: u64,
}

impl OwnerRelease {
    /// The release for a node with these votes. It knows the hold by the fence that it stores.
    pub(super) fn at(self, votes: &[Fence]) -> Self {
        let higher = higher(self.certified, votes);
        Self {
            fence: self.fence.and(higher).or(self.fence),
            ..self
        }
    }
}

/// The fence of the hold at a node that granted the lock itself, with a higher fence than the certificate.
fn higher(certified: Option<Fences>, votes: &[Fence]) -> Option<Fence> {
    match votes {
        [vote] if *vote > certified?.last() => Some(*vote),
        _ => None,
    }
}

impl<C> Record<C> {
    fn new(name: &LockName, nodes: usize, until: Moment) -> Self {
        Self {
            name: name.clone(),
            open: vec![0; nodes],
            votes: vec![Vec::new(); nodes],
            late_until: vec![None; nodes],
            ttl: Duration::ZERO,
            attempt: None,
            certified: None,
            keeps_votes: false,
            lacking: Vec::new(),
            beyond: vec![None; nodes],
            granted: None,
            back: VotesBack::default(),
            release: None,
            waits_for: vec![false; nodes],
            asked: vec![false; nodes],
            next: vec![Vec::new(); nodes],
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

    /// The node has not answered a proposal with this fence. It may vote for it now, or when the proposal arrives.
    pub(super) fn may_have_vote(&mut self, node: usize, fence: Fence, now: Moment) {
        self.votes[node].push(fence);
        self.late_until[node] = Some(now.after(self.ttl));
    }

    /// The fence of the hold at a node that granted the lock itself, with a higher fence than the certificate.
    pub(super) fn higher_at(&self, node: usize) -> Option<Fence> {
        higher(self.certified, &self.votes[node])
    }

    /// Notes that a node did not renew a hold of the certificate: it lacks the vote, or holds with a higher fence.
    pub(super) fn lacks_vote(&mut self, owner: &Owner, node: usize, holder: Option<&HolderView>) {
        let Some(certified) = self.certified else {
            return;
        };
        self.votes[node].clear();
        match holder {
            // Its vote is newer than this renewal.
            Some(HolderView {
                who: HolderIdentity::Owner(by),
                fence: Some(fence),
                ..
            }) if by == owner && *fence > certified.last() => self.has_vote(node, *fence),
            _ if self.lacking.contains(&node) => {}
            _ => self.lacking.push(node),
        }
    }

    /// Notes the answer of a node that may lack a vote for the certificate.
    pub(super) fn hears_bounds(&mut self, node: usize, answer: &Answer) {
        if let (Some(certified), Ok(Reply::NoVote(NoVote::Behind(bounds)))) =
            (self.certified, answer)
            && bounds.least > certified.last()
        {
            self.beyond[node] = Some(*bounds);
        }
    }

    /// Takes the attempts that follow the release at this node, once the release can be sent there.
    pub(super) fn take_next(&mut self, node: usize) -> Vec<(Owner, u64)> {
        let is_released = self.release.is_some() && self.open[node] == 0;
        if is_released {
            std::mem::take(&mut self.next[node])
        } else {
            Vec::new()
        }
    }

    /// The highest fence of this owner that is known.
    pub(super) fn highest(&self) -> Option<Fence> {
        let votes = self.votes.iter().flatten().copied();
        let granted = self.granted.map(Fences::last);
        votes.chain(granted).chain(self.back.highest).max()
    }

    /// Whether nothing of it is left at any node, nor on its way.
    fn is_empty(&self, now: Moment) -> bool {
        let is_idle = self.attempt.is_none() && self.certified.is_none() && self.granted.is_none();
        let is_open = self.open.iter().any(|open| *open > 0);
        let is_late = self.late_until.iter().flatten().any(|until| *until > now);
        is_idle
            && !is_open
            && !is_late
            && self.back.count == 0
            && (self.release.is_some() || self.votes.iter().all(Vec::is_empty))
    }
}

/// All owners with votes.
pub(super) struct Owners<C> {
    nodes: usize,
    records: HashMap<Owner, Record<C>>,
    /// For each name, the last owner whose release some nodes have not got yet (V2).
    releasing: HashMap<LockName, Owner>,
    to_sweep: usize,
}

impl<C> Owners<C> {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            records: HashMap::new(),
            releasing: HashMap::new(),
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

    /// Some nodes get the release of this owner later.
    pub(super) fn releases_later(&mut self, name: &LockName, owner: &Owner) {
        self.releasing.insert(name.clone(), owner.clone());
    }

    /// Lets an attempt of `owner` follow the release of the owner before it, at the nodes that have not got that yet. There its
    /// proposal would find the lock held. Returns for each node whether it has to wait.
    pub(super) fn follow(&mut self, name: &LockName, owner: &Owner, attempt: u64) -> Vec<bool> {
        let before = self.releasing.get(name).filter(|before| *before != owner);
        let before = before.and_then(|before| self.records.get_mut(before));
        let Some(before) = before.filter(|before| before.release.is_some()) else {
            return vec![false; self.nodes];
        };
        let open = before.open.iter().zip(&mut before.next);
        let waits = open.map(|(open, next)| {
            if *open > 0 {
                next.push((owner.clone(), attempt));
            }
            *open > 0
        });
        let waits: Vec<bool> = waits.collect();
        if waits.iter().all(|waits| !waits) {
            self.releasing.remove(name);
        }
        waits
    }

    /// A vote of this owner is given back.
    pub(super) fn has_given_back(&mut self, owner: &Owner, now: Moment) {
        if let Some(record) = self.records.get_mut(owner) {
            record.back.end();
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
            let records = &self.records;
            self.releasing
                .retain(|_, owner| records.contains_key(owner));
            self.to_sweep = self.records.len().max(SWEEP_EVERY);
        }
    }

    /// How many owners are under way or have votes. A grant that comes late is remembered besides, until the next sweep.
    #[cfg(test)]
    pub(super) fn unsettled(&self) -> usize {
        let is_unsettled = |record: &&Record<C>| {
            let has_votes = record.votes.iter().any(|votes| !votes.is_empty());
            let votes = has_votes && record.release.is_none();
            let is_open = record.open.iter().any(|open| *open > 0);
            record.attempt.is_some() || record.certified.is_some() || votes || is_open
        };
        self.records.values().filter(is_unsettled).count()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

//! Renewals and releases at all nodes, and the repair of a lease that lacks votes.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::Proposal;
use leasehold_core::{Fence, Fences, LockName, Owner, Reply, Step, Ttl};

use super::acquire::Act;
use super::attempt::Request;
use super::gather::{Gather, Judge};
use super::judge::{confirmed, left};
use super::owners::OwnerRelease;
use super::state::Quorum;
use crate::store::contract::{Answer, Done};

/// The pause before a release or a vote is given back again.
const AGAIN: Duration = Duration::from_secs(1);

/// A renewal.
pub(super) struct RenewalRequest {
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    pub(super) fence: Option<Fence>,
}

impl Quorum {
    /// Renews a lease at all nodes. A waiter to which the lead has granted its vote claims the others.
    pub(super) fn extend(self: &Arc<Self>, name: &LockName, renewal: RenewalRequest, done: Done) {
        let RenewalRequest { owner, ttl, fence } = renewal;
        let (granted, certified, higher) = {
            let (now, mut state) = (self.clock.now(), self.lock());
            let record = state.owners.get(&owner);
            let granted = record.as_ref().and_then(|record| {
                let is_claim = record.certified.is_none() && fence.is_none();
                record.granted.filter(|_| is_claim)
            });
            let certified = record.as_ref().and_then(|record| record.certified);
            let higher_at = |node| record.as_ref().and_then(|record| record.higher_at(node));
            let higher: Vec<_> = (0..self.nodes.len()).map(higher_at).collect();
            if record.is_some() {
                // Remembered for as long as the lease.
                state.owners.entry(&owner, name, ttl.get(), now);
            }
            (granted, certified, higher)
        };
        if let Some(granted) = granted {
            let request = Request {
                ttl,
                block: granted.block,
                wait: None,
                is_claim: true,
            };
            return self.acquire(name, &owner, request, done);
        }
        let (quorum, of, by) = (self.clone(), name.clone(), owner.clone());
        let done = Done::new(move |answer| {
            if let Ok(Reply::Held(_)) = &answer {
                quorum.repair(&of, &by, ttl);
            }
            done.answer(answer);
        });
        let gather = Gather::new(self.nodes.len(), self.confirmed(), done);
        for (node, higher) in higher.into_iter().enumerate() {
            let (quorum, by, gather) = (self.clone(), owner.clone(), gather.clone());
            // A node knows the hold by the fence that it stores.
            let higher = fence.and(higher);
            let step = Step::Extend {
                owner: owner.clone(),
                ttl,
                fence: higher.or(fence),
            };
            self.ask(node, name, step, move |mut answer| {
                quorum.renewed(&by, node, &answer);
                if let (Ok(Reply::Held(held)), Some(_), Some(Fences { first, block })) =
                    (&mut answer, higher, certified)
                {
                    (held.fence, held.block) = (Some(first), block);
                }
                gather.heard(node, answer);
            });
        }
    }

    /// Notes a node that lacks the vote of a lease.
    fn renewed(&self, owner: &Owner, node: usize, answer: &Answer) {
        let mut state = self.lock();
        state.leads.heard(node, answer.is_ok());
        if let (Some(record), Ok(Reply::NotHeld(_))) = (state.owners.get(owner), answer)
            && record.certified.is_some()
        {
            record.votes[node].clear();
            if !record.lacking.contains(&node) {
                record.lacking.push(node);
            }
        }
    }

    /// Asks the nodes that lack the vote of a confirmed lease for it, so that the loss of other nodes does not end the lease.
    /// No other owner can have a majority meanwhile. The answers are not awaited.
    fn repair(self: &Arc<Self>, name: &LockName, owner: &Owner, ttl: Ttl) {
        let acts = {
            let mut state = self.lock();
            let Some(record) = state.owners.get(owner) else {
                return;
            };
            let Some(fences) = record.certified.filter(|_| record.release.is_none()) else {
                return;
            };
            let lacking = std::mem::take(&mut record.lacking);
            let repair = |node: usize| {
                record.open[node] += 1;
                let proposal = Proposal {
                    owner: owner.clone(),
                    ttl,
                    fences,
                    terms: self.terms,
                    wait: None,
                };
                Act::Propose(node, proposal)
            };
            lacking.into_iter().map(repair).collect::<Vec<_>>()
        };
        self.perform(name, owner, acts);
    }

    /// Releases an owner at all nodes: its votes, and its place in a queue.
    pub(super) fn release(
        self: &Arc<Self>,
        name: &LockName,
        owner: &Owner,
        (keep, fence): (Option<Ttl>, Option<Fence>),
        done: Done,
    ) {
        let (at_once, release, superseded) = {
            let (now, mut state) = (self.clock.now(), self.lock());
            let lead = state.leads.of(name);
            let record = state.owners.entry(owner, name, Duration::ZERO, now);
            let is_lease = fence.is_some() || keep.is_some() || record.certified.is_some();
            let label = self.label.clone();
            let judge: Judge = if is_lease {
                self.confirmed()
            } else {
                Box::new(move |answers| left(answers, lead, &label))
            };
            let release = OwnerRelease {
                keep,
                fence,
                gather: Gather::new(self.nodes.len(), judge, done),
            };
            record.release = Some(release.clone());
            (record.certified, record.granted) = (None, None);
            // The others follow when they have answered (V2).
            let at_once = (0..self.nodes.len()).filter(|node| record.open[*node] == 0);
            let (at_once, superseded) = (at_once.collect::<Vec<_>>(), record.attempt.take());
            state.owners.tidy(owner);
            (at_once, release, superseded)
        };
        drop(superseded);
        for node in at_once {
            self.release_at(node, name, owner, release.clone());
        }
    }

    /// Releases an owner at one node, and repeats it until the node has answered or the vote has expired.
    pub(super) fn release_at(
        self: &Arc<Self>,
        node: usize,
        name: &LockName,
        owner: &Owner,
        release: OwnerRelease,
    ) {
        let OwnerRelease {
            keep,
            fence,
            gather,
        } = release;
        let step = Step::Release {
            owner: owner.clone(),
            keep,
            fence,
        };
        let (quorum, of, again) = (self.clone(), name.clone(), step.clone());
        self.ask(node, name, step, move |answer| {
            quorum.lock().leads.heard(node, answer.is_ok());
            if answer.is_err() {
                quorum.insist(node, of, again);
            }
            gather.heard(node, answer);
        });
    }

    /// Takes a step at a node that nobody waits for, and repeats it until the node has answered (V1).
    pub(super) fn settle(self: &Arc<Self>, node: usize, name: &LockName, step: Step) {
        let (quorum, of, again) = (self.clone(), name.clone(), step.clone());
        self.ask(node, name, step, move |answer| {
            if answer.is_err() {
                quorum.insist(node, of, again);
            }
        });
    }

    /// Repeats a step until the node has answered, or all votes from before have expired.
    fn insist(self: &Arc<Self>, node: usize, name: LockName, step: Step) {
        let quorum = self.clone();
        let until = self.clock.now().after(self.terms.longest_ttl.get());
        self.tasks.spawn_aside(async move {
            while quorum.clock.now() < until {
                quorum.clock.sleep(AGAIN).await;
                if quorum.nodes[node].apply(&name, step.clone()).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Judges a step that a majority has to confirm.
    pub(super) fn confirmed(&self) -> Judge {
        let label = self.label.clone();
        Box::new(move |answers| confirmed(answers, &label))
    }
}

//! Renewals and releases at all nodes, and the repair of a lease that lacks votes.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::Proposal;
use leasehold_core::{Fence, LockName, Owner, Reply, Step, Ttl};

use super::acquire::Act;
use super::attempt::Request;
use super::gather::{Gather, Judge};
use super::judge::confirmed;
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
        let is_claim = {
            let (now, mut state) = (self.clock.now(), self.lock());
            let record = state.owners.get(&owner);
            let is_claim = record.as_ref().is_some_and(|record| {
                record.granted.is_some() && record.certified.is_none() && fence.is_none()
            });
            if record.is_some() {
                // Remembered for as long as the lease.
                state.owners.entry(&owner, name, ttl.get(), now);
            }
            is_claim
        };
        if is_claim {
            let request = Request {
                ttl,
                block: leasehold_core::Block::ONE,
                wait: None,
                is_claim,
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
        for node in 0..self.nodes.len() {
            let (quorum, by, gather) = (self.clone(), owner.clone(), gather.clone());
            let step = Step::Extend {
                owner: owner.clone(),
                ttl,
                fence,
            };
            self.ask(node, name, step, move |answer| {
                quorum.renewed(&by, node, &answer);
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
            && !record.lacking.contains(&node)
        {
            record.lacking.push(node);
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
        let release = OwnerRelease {
            keep,
            fence,
            gather: Gather::new(self.nodes.len(), self.confirmed(), done),
        };
        let (at_once, superseded) = {
            let (now, mut state) = (self.clock.now(), self.lock());
            let record = state.owners.entry(owner, name, Duration::ZERO, now);
            record.release = Some(release.clone());
            (record.certified, record.granted) = (None, None);
            // The others follow when they have answered (V2).
            let at_once = (0..self.nodes.len()).filter(|node| record.open[*node] == 0);
            let (at_once, superseded) = (at_once.collect::<Vec<_>>(), record.attempt.take());
            state.owners.tidy(owner);
            (at_once, superseded)
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

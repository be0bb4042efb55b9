//! Renewals and releases at all nodes, and the repair of a lease that lacks votes.

use std::time::Duration;

use leasehold_core::quorum::Proposal;
use leasehold_core::{Block, Fence, Owner, Reply, Step, Ttl, WAITER_GRACE};

use super::attempt::{QuorumInfo, Request, answer_of, superseded};
use super::effects::{EventTime, NodeRenewal, Purpose, QuorumEffect, QuorumTimer, VoteUndo};
use super::judge::Question;
use super::machine::QuorumMachine;
use super::owners::{OwnerRelease, Party};
use crate::clock::Moment;
use crate::store::contract::Answer;

/// The pause before a release or a vote is given back again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a node may keep a place in its queue for a waiter that is silent: the longest pause between two polls, and
/// [`WAITER_GRACE`].
const PLACE: Duration = WAITER_GRACE.saturating_mul(2);

impl<C> QuorumMachine<C> {
    /// Renews a lease at all nodes. An owner that has no lease yet claims the votes of all: the lead has granted its own.
    pub(super) fn extend(
        &mut self,
        at: EventTime,
        party: Party<'_>,
        ttl: Ttl,
        fence: Option<Fence>,
        caller: C,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let Party { owner, name } = party;
        let nodes = self.info.nodes.len();
        let mut higher_at = vec![None; nodes];
        let mut certified = None;
        let known = self.owners.get(owner);
        let is_waiting = known.as_ref().is_some_and(|known| {
            // A lock that its owner has released may be kept, and is extended as a lease.
            known.certified.is_none() && known.release.is_none()
        });
        if fence.is_none() && is_waiting {
            // Without a certificate there is no lease to renew, whatever votes this owner has (QR6).
            let granted = known.and_then(|known| known.granted);
            let request = Request {
                ttl,
                block: granted.map_or(Block::ONE, |granted| granted.block),
                wait: None,
                is_claim: true,
            };
            return self.acquire(at, party, request, caller, effects);
        }
        if known.is_some() {
            // Remembered for as long as the lease.
            let record = self.owners.entry(owner, name, ttl.get(), at.now);
            certified = record.certified;
            if fence.is_some() {
                higher_at = (0..nodes).map(|node| record.higher_at(node)).collect();
            }
        }
        let gathering = self
            .gatherings
            .begin(nodes, Question::Confirm, Some(ttl), caller);
        for (node, higher) in higher_at.into_iter().enumerate() {
            effects.push(QuorumEffect::Send {
                node,
                name: name.clone(),
                // A node knows the hold by the fence that it stores.
                step: Step::Extend {
                    owner: owner.clone(),
                    ttl,
                    fence: higher.or(fence),
                },
                purpose: Purpose::Renewal(NodeRenewal {
                    gathering,
                    owner: owner.clone(),
                    certified: certified.filter(|_| higher.is_some()),
                }),
            });
        }
    }

    /// A node has answered a renewal.
    pub(super) fn renewed(
        &mut self,
        at: EventTime,
        node: usize,
        renewal: &NodeRenewal,
        mut answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let owner = &renewal.owner;
        if let (Some(record), Ok(Reply::NotHeld(holder))) = (self.owners.get(owner), &answer) {
            record.lacks_vote(owner, node, holder.as_ref());
        }
        if let (Ok(Reply::Held(held)), Some(lease)) = (&mut answer, renewal.certified) {
            (held.fence, held.block) = (Some(lease.first), lease.block);
        }
        if let Some(ttl) = self.gathered(renewal.gathering, node, answer, effects) {
            self.repair(at, owner, ttl, effects);
        }
    }

    /// Counts the answer of a node to a step that went to all, and answers the caller as soon as the answer is known.
    /// Returns the TTL of a renewal that is confirmed.
    pub(super) fn gathered(
        &mut self,
        gathering: u64,
        node: usize,
        answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) -> Option<Ttl> {
        let QuorumInfo {
            label,
            nodes,
            terms,
        } = &self.info;
        let answer = answer_of(&nodes[node], answer, *terms);
        let judged = self.gatherings.heard(gathering, node, answer, label)?;
        effects.push(QuorumEffect::Answer(judged.caller, judged.answer));
        judged.confirmed
    }

    /// Asks the nodes that lack the vote of a confirmed lease for it, so that the loss of other nodes does not end the lease.
    /// No other owner can have a majority meanwhile. The answers are not awaited. A node that accepts only higher fences holds
    /// under one of them, for which its vote is no part of the certificate.
    fn repair(
        &mut self,
        at: EventTime,
        owner: &Owner,
        ttl: Ttl,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let Some(record) = self.owners.get(owner) else {
            return;
        };
        let Some(certified) = record.certified.filter(|_| record.release.is_none()) else {
            return;
        };
        for node in std::mem::take(&mut record.lacking) {
            (record.open[node], record.asked[node]) = (record.open[node] + 1, true);
            let fences = record.beyond[node].take().map_or(certified, |bounds| {
                (self.proposer).propose(certified.block, at.wall_us, Some(bounds))
            });
            effects.push(QuorumEffect::Send {
                node,
                name: record.name.clone(),
                step: Step::Propose(Proposal {
                    owner: owner.clone(),
                    ttl,
                    fences,
                    terms: self.info.terms,
                    wait: None,
                }),
                purpose: Purpose::Vote {
                    owner: owner.clone(),
                    asked: fences.first,
                },
            });
        }
    }

    /// Releases an owner at all nodes: its votes, and its place in a queue.
    pub(super) fn release(
        &mut self,
        at: EventTime,
        party: Party<'_>,
        keep: Option<Ttl>,
        fence: Option<Fence>,
        caller: C,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let Party { owner, name } = party;
        let (nodes, lead) = (self.info.nodes.len(), self.leads.of(name));
        let record = self.owners.entry(owner, name, Duration::ZERO, at.now);
        let is_lease = fence.is_some() || keep.is_some() || record.certified.is_some();
        let question = if is_lease {
            Question::Confirm
        } else {
            Question::Leave { lead }
        };
        let gathering = self.gatherings.begin(nodes, question, None, caller);
        let release = OwnerRelease {
            keep_until: keep.map(|keep| at.now.after(keep.get())),
            fence,
            certified: record.certified,
            gathering,
        };
        let before = record.release.replace(release);
        (record.certified, record.granted) = (None, None);
        let abandoned = record
            .attempt
            .take()
            .and_then(|mut attempt| attempt.caller.take());
        let late_until = record.late_until.clone();
        // A node that was never asked for a vote has nothing to release.
        let is_unasked = |node: &usize| record.waits_for[*node] && !record.asked[*node];
        let (unasked, asked): (Vec<usize>, Vec<usize>) = (0..nodes).partition(is_unasked);
        // The others follow when they have answered (V2).
        let (at_once, later): (Vec<usize>, Vec<usize>) =
            asked.into_iter().partition(|node| record.open[*node] == 0);
        let at_once = at_once
            .into_iter()
            .map(|node| (node, release.at(&record.votes[node])));
        let at_once: Vec<_> = at_once.collect();
        if !later.is_empty() {
            self.owners.releases_later(name, owner);
        }
        self.owners.tidy(owner, at.now);
        if let Some(caller) = abandoned {
            let error = superseded(&self.info.label);
            effects.push(QuorumEffect::Answer(caller, Err(error)));
        }
        if let Some(before) = before {
            // The release before is not sent to these nodes any more.
            for node in later {
                let error = superseded(&self.info.label);
                self.gathered(before.gathering, node, Err(error), effects);
            }
        }
        for node in unasked {
            self.gathered(gathering, node, Ok(Reply::NotHeld(None)), effects);
        }
        for (node, release) in at_once {
            effects.push(release_at(node, party, release, late_until[node], at.now));
        }
    }

    /// A node has answered a step that takes something back, or has not answered in time. The step is repeated until the node
    /// answers and no earlier proposal can arrive any more, or all that the node may keep has expired (V1).
    pub(super) fn undone(
        &mut self,
        at: EventTime,
        node: usize,
        has_answered: bool,
        undo: VoteUndo,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let longest = self.info.terms.longest_ttl.get().max(PLACE);
        let failed_until = undo.until.unwrap_or_else(|| at.now.after(longest));
        let (until, is_needed) = if has_answered {
            // A late proposal may follow a try that was sent before. A lock that is to stay taken is not freed by a repeat.
            let is_late = undo.late_until.is_some_and(|late| undo.sent < late);
            (None, is_late && undo.keep_until.is_none())
        } else {
            (Some(failed_until), at.now < failed_until)
        };
        if is_needed {
            let again = VoteUndo {
                until,
                is_repeated: true,
                ..undo
            };
            effects.push(QuorumEffect::Wake(AGAIN, QuorumTimer::Undo(node, again)));
        } else if let Step::GiveBack { owner, .. } = &undo.step {
            self.owners.has_given_back(owner, at.now);
        } else if let Step::Release { owner, .. } = &undo.step {
            self.owners.tidy(owner, at.now);
        }
    }
}

/// Releases an owner at a node.
pub(super) fn release_at<C>(
    node: usize,
    party: Party<'_>,
    release: OwnerRelease,
    late_until: Option<Moment>,
    now: Moment,
) -> QuorumEffect<C> {
    let Party { owner, name } = party;
    let OwnerRelease {
        keep_until,
        fence,
        gathering,
        ..
    } = release;
    let undo = VoteUndo {
        name: name.clone(),
        step: Step::Release {
            owner: owner.clone(),
            keep: None,
            fence,
        },
        keep_until,
        late_until,
        sent: now,
        until: None,
        is_repeated: false,
    };
    QuorumEffect::Send {
        node,
        name: name.clone(),
        step: undo.step_at(now),
        purpose: Purpose::Release { gathering, undo },
    }
}

/// Gives back a vote.
pub(super) fn give_back_at<C>(
    node: usize,
    party: Party<'_>,
    fence: Fence,
    late_until: Option<Moment>,
    now: Moment,
) -> QuorumEffect<C> {
    let Party { owner, name } = party;
    let undo = VoteUndo {
        name: name.clone(),
        step: Step::GiveBack {
            owner: owner.clone(),
            fence,
        },
        keep_until: None,
        late_until,
        sent: now,
        until: None,
        is_repeated: false,
    };
    QuorumEffect::Send {
        node,
        name: name.clone(),
        step: undo.step.clone(),
        purpose: Purpose::Undo(undo),
    }
}

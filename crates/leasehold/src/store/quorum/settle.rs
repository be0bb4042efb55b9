//! Renewals and releases at all nodes, and the repair of a lease that lacks votes.

use std::time::Duration;

use leasehold_core::{Block, Fence, Fences, HolderIdentity, Reply, Step, Ttl, WAITER_GRACE};

use super::attempt::{QuorumInfo, Request, answer_of, superseded};
use super::effects::{EventTime, NodeRenewal, Purpose, QuorumEffect, QuorumTimer, VoteUndo};
use super::judge::{Judged, Question};
use super::machine::QuorumMachine;
use super::owners::{OwnerRelease, Party};
use crate::error::StoreError;
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
        let known = self.owners.get(owner).map(|known| &*known);
        let is_waiting = known.as_ref().is_some_and(|known| {
            // A lock that its owner has released may be kept, and is extended as a lease.
            known.certified.is_none() && known.release.is_none()
        });
        if fence.is_none() && is_waiting {
            // Without a certificate there is no lease to renew, whatever votes this owner has (QR6).
            let granted = known.and_then(|known| known.granted);
            let request = Request {
                is_shared: known.is_some_and(|known| known.is_shared),
                ttl,
                block: granted.map_or(Block::ONE, |granted| granted.block),
                wait: None,
                is_claim: true,
            };
            return self.acquire(at, party, request, caller, effects);
        }
        let is_known = known.is_some();
        if is_known {
            // Remembered for as long as the lease.
            self.owners.entry(owner, name, ttl.get(), at.now);
        }
        let gathering = self.gatherings.begin(nodes, Question::Confirm, caller);
        let record = self.owners.get(owner);
        let reader = record.as_ref().filter(|record| record.is_shared);
        let is_shared = reader.is_some();
        let number = reader.and_then(|reader| reader.certified);
        let fence = fence.or(number.map(|number| number.first));
        for node in 0..nodes {
            let higher = record.as_ref().and_then(|record| {
                let certified = record.certified.filter(|_| fence.is_some());
                record.nodes[node].higher_than(certified)
            });
            let renewal = NodeRenewal {
                gathering,
                name: name.clone(),
                owner: owner.clone(),
                ttl,
                sent: at.now,
                until: at.now.after(ttl.get()),
                is_known,
                is_shared,
                lease: fence,
                asked: higher.or(fence),
            };
            effects.push(renew_at(node, renewal));
        }
    }

    /// A node has answered a renewal.
    pub(super) fn renewed(
        &mut self,
        at: EventTime,
        node: usize,
        renewal: NodeRenewal,
        mut answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let mut record = self.owners.get(&renewal.owner);
        if let Some(fence) = higher_hold(&renewal, &answer)
            && record
                .as_ref()
                .is_none_or(|record| record.may_hold_by(&renewal, fence))
        {
            // A later proposal of this owner raised the hold, and it is a vote for the owner all the same.
            if let Some(record) = record {
                record.nodes[node].votes.clear();
                record.nodes[node].has_vote(fence);
            }
            let asked = Some(fence);
            return effects.push(renew_at(node, NodeRenewal { asked, ..renewal }));
        }
        if let Some(record) = &mut record {
            let at_node = &mut record.nodes[node];
            match &answer {
                Ok(Reply::NotHeld(_)) => at_node.votes.clear(),
                Err(error) if error.may_have_taken_effect => {
                    at_node.may_be_renewed_late(renewal.ttl, at.now);
                }
                _ => {}
            }
            if let Some(shorter) = at_node.may_be_cut_to(renewal.ttl, at.now)
                && !matches!(answer, Ok(Reply::NotHeld(_)))
            {
                let timer = QuorumTimer::Guard(node, renewal.clone());
                effects.push(QuorumEffect::Wake(shorter.get() / 3, timer));
            }
        }
        if let (Ok(Reply::Held(held)), Some(lease)) = (&mut answer, renewal.lease)
            && renewal.asked > renewal.lease
        {
            // The node stores another fence than that of the lease.
            let certified = record.and_then(|record| record.certified);
            held.fence = Some(certified.map_or(lease, |certified| certified.first));
            held.block = certified.map_or(held.block, |certified| certified.block);
        }
        let (_, mut context) = self.context(at, &renewal.owner, effects);
        context.note_waiters(&renewal.name, node, renewal.sent, &answer);
        let Some(mut judged) = self.judged(renewal.gathering, node, answer) else {
            return;
        };
        if let Some((caller, mut answer)) = judged.answer.take() {
            if let Ok(Reply::Held(held)) = &mut answer {
                // The lead alone knows its waiters, and a majority may have answered without it.
                let is_wanted = self.wanted.was_wanted(&renewal.name, PLACE, at.now);
                held.queued = held.queued.max(is_wanted.into());
                held.fence = held.fence.filter(|_| !renewal.is_shared);
            }
            effects.push(QuorumEffect::Answer(caller, answer));
        }
        if let Some(lease) = renewal.lease
            && !judged.lacking.is_empty()
        {
            self.repair(at, &renewal, lease, judged, effects);
        }
    }

    /// Renews at a node for the rest of a lease, since a late renewal with a shorter TTL may have cut it short there.
    pub(super) fn guard(
        &mut self,
        at: EventTime,
        node: usize,
        renewal: NodeRenewal,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let record = self.owners.get(&renewal.owner);
        let is_held = record.is_some_and(|it| it.certified.is_some() && it.release.is_none());
        if let (true, Ok(ttl)) = (is_held, Ttl::new(renewal.until.since(at.now))) {
            // Nobody waits for the answer.
            let gathering = 0;
            let again = NodeRenewal {
                gathering,
                ttl,
                ..renewal
            };
            effects.push(renew_at(node, again));
        }
    }

    /// Counts the answer of a node to a step that went to all, and answers the caller as soon as the answer is known.
    pub(super) fn gathered(
        &mut self,
        gathering: u64,
        node: usize,
        answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let judged = self.judged(gathering, node, answer);
        if let Some((caller, answer)) = judged.and_then(|judged| judged.answer) {
            effects.push(QuorumEffect::Answer(caller, answer));
        }
    }

    /// What the answer of a node to a step that went to all decides. `None` if all was said before.
    fn judged(&mut self, gathering: u64, node: usize, answer: Answer) -> Option<Judged<C>> {
        let QuorumInfo {
            label,
            nodes,
            terms,
        } = &self.info;
        let answer = answer_of(&nodes[node], answer, *terms);
        self.gatherings.heard(gathering, node, answer, label)
    }

    /// Asks the nodes that lack the vote of a renewed lease for it, so that the loss of other nodes does not end the lease; also if the
    /// renewal was undecided: with these votes the next one has a majority. The answers are not awaited. A lease that another process has
    /// taken has its fence alone.
    ///
    /// If a majority has renewed it, no other owner can have a majority meanwhile, unless a break met the renewal under way. So a node that
    /// has counted on may vote for a higher fence. Else it may have been broken, and another owner may have had the lock: only a node that has seen no higher fence votes (QR2).
    fn repair(
        &mut self,
        at: EventTime,
        renewal: &NodeRenewal,
        lease: Fence,
        judged: Judged<C>,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let NodeRenewal {
            name, owner, ttl, ..
        } = renewal;
        let (owners, mut context) = self.context(at, owner, effects);
        if renewal.is_known && owners.get(owner).is_none() {
            // It was released meanwhile.
            return;
        }
        let record = owners.entry(owner, name, ttl.get(), at.now);
        if record.release.is_none() && record.attempt.is_none() {
            let certified = *record.certified.get_or_insert(Fences {
                first: lease,
                block: Block::ONE,
            });
            for node in judged.lacking {
                let at_node = &mut record.nodes[node];
                at_node.may_raise = judged.is_renewed;
                // Two raises could follow each other, with a break in between.
                if at_node.open == 0 {
                    context.ask(record, node, certified, *ttl, None);
                }
            }
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
            // An operator who breaks another client's hold or place has to hear whether there was one.
            let is_ours = self.client == Some(owner.client());
            Question::Leave { lead, is_ours }
        };
        let gathering = self.gatherings.begin(nodes, question, caller);
        // A reader's client knows no number. With it, a release keeps its place behind a renewal.
        let reader = record.certified.filter(|_| record.is_shared);
        let release = OwnerRelease {
            keep,
            fence: fence.or(reader.map(|reader| reader.first)),
            certified: record.certified,
        };
        record.release = Some(release);
        (record.certified, record.granted, record.behind) = (None, None, None);
        record.waits_to_read = false;
        let abandoned = record.attempt.take();
        for (at_node, node) in record.nodes.iter_mut().zip(0..) {
            at_node.releases += 1;
            let undo = release.undo_at(at_node, party, at.now);
            effects.push(undo.send(node, Some(gathering), at.now));
        }
        if let Some(caller) = abandoned.and_then(|attempt| attempt.caller) {
            let error = superseded(&self.info.label);
            effects.push(QuorumEffect::Answer(caller, Err(error)));
        }
    }

    /// A node has answered a release, or has not answered in time.
    pub(super) fn released(
        &mut self,
        at: EventTime,
        node: usize,
        (gathering, undo): (u64, VoteUndo),
        answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        if let (Ok(reply), Step::Release { owner, .. }) = (&answer, &undo.step)
            && let Some(record) = self.owners.get(owner)
            && record.nodes[node].open > 0
            && undo.may_be_repeated()
        {
            // A proposal that it overtook may make the owner a holder after it. What it has freed, it has.
            let is_freed = *reply == Reply::Released;
            let gathers = (!is_freed).then_some(gathering);
            record.nodes[node].overtook.push((gathers, undo));
            if is_freed {
                self.gathered(gathering, node, answer, effects);
            }
            return;
        }
        self.undone(at, node, answer.is_ok(), undo, effects);
        // A release without an answer is sent again, so it takes effect even if this request was never sent.
        let answer = answer.map_err(StoreError::unknown);
        self.gathered(gathering, node, answer, effects);
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
        let (Step::Release { owner, .. } | Step::GiveBack { owner, .. }) = &undo.step else {
            return;
        };
        let longest = self.info.terms.longest_ttl.get().max(PLACE);
        let failed_until = undo.until.unwrap_or_else(|| at.now.after(longest));
        let (until, is_needed) = if has_answered {
            // A late proposal may follow a try that was sent before.
            let record = self.owners.get(owner);
            let late_until = record.and_then(|record| record.nodes[node].late_until);
            let is_late = late_until.is_some_and(|late| undo.sent < late);
            (None, is_late)
        } else {
            (Some(failed_until), at.now < failed_until)
        };
        if is_needed && undo.may_be_repeated() {
            let again = VoteUndo {
                until,
                is_repeated: true,
                ..undo
            };
            effects.push(QuorumEffect::Wake(AGAIN, QuorumTimer::Undo(node, again)));
        } else {
            let is_release = matches!(undo.step, Step::Release { .. });
            self.owners.has_taken_back(owner, node, is_release, at.now);
        }
    }

    /// The process may end before all nodes have answered. What takes back their votes follows the proposals on the same connections.
    pub(super) fn closing(&mut self, at: EventTime, effects: &mut Vec<QuorumEffect<C>>) {
        for (owner, record) in self.owners.all() {
            let is_used = record.attempt.is_some() || record.certified.is_some();
            if is_used || record.keeps_votes || record.release.is_some() {
                continue;
            }
            let name = &record.name;
            let open = record.nodes.iter_mut().zip(0..);
            for (at_node, node) in open.filter(|(at_node, _)| at_node.open > 0) {
                at_node.releases += 1;
                let undo = OwnerRelease::default().undo_at(at_node, Party { owner, name }, at.now);
                effects.push(undo.send(node, None, at.now));
            }
        }
    }
}

/// Renews a lease at a node.
fn renew_at<C>(node: usize, renewal: NodeRenewal) -> QuorumEffect<C> {
    QuorumEffect::Send {
        node,
        name: renewal.name.clone(),
        // A node knows the hold by the fence that it stores.
        step: Step::Extend {
            owner: renewal.owner.clone(),
            ttl: renewal.ttl,
            fence: renewal.asked,
        },
        purpose: Purpose::Renewal(renewal),
    }
}

/// The fence of the owner's hold in a refusal to renew it, if that is higher than the one by which the node was asked.
fn higher_hold(renewal: &NodeRenewal, answer: &Answer) -> Option<Fence> {
    match answer {
        Ok(Reply::NotHeld(Some(holder))) => {
            let is_own =
                matches!(&holder.who, HolderIdentity::Owner(owner) if *owner == renewal.owner);
            holder
                .fence
                .filter(|fence| is_own && Some(*fence) > renewal.asked)
        }
        _ => None,
    }
}

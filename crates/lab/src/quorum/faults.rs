//! The effects of faults.

use leasehold_core::{Fence, Step};

use super::actions::NodeEvent;
use super::model::QuorumTurn;
use super::numbers::pass;
use super::setup::{QuorumFault, QuorumSituation};
use super::state::{LateProposal, NodeState, QuorumPhase, TakenBy, Vote};
use crate::frame::CallId;

impl QuorumTurn<'_> {
    /// A request fails. It may be carried out later.
    pub(super) fn fail_request(&mut self, client: u8, node: usize, is_late: bool) -> Option<()> {
        if !self.model.is_cut(client, node) {
            self.state.spent += 1;
        }
        let it = self.state.client(client);
        let (nth, asked) = (it.nth, it.at[node].open[0]);
        let waits = self.waits_at(client, node);
        if is_late {
            let late = &mut self.state.late[usize::from(client)][node];
            if late.is_some() {
                return None;
            }
            *late = Some(LateProposal {
                nth,
                fence: asked,
                waits,
                is_repeat: false,
            });
        }
        self.voted(client, node, asked, None)
    }

    /// A node carries out a proposal whose client no longer waits for the answer.
    pub(super) fn arrive_late(&mut self, client: u8, node: usize, again: bool) -> Option<()> {
        let late = &mut self.state.late[usize::from(client)][node];
        let LateProposal {
            nth, fence, waits, ..
        } = (*late)?;
        match late.as_mut().filter(|_| again) {
            Some(late) => late.is_repeat = true,
            None => *late = None,
        }
        let by = CallId { client, nth };
        let is_new = !self.state.nodes[node]
            .owners()
            .any(|(known, _)| known == by);
        let reply = self.take(by, node, fence, waits);
        let it = self.state.client(client);
        // It has released at this node, or has given the vote back.
        let at = &it.at[node];
        let has_settled = it.phase == QuorumPhase::Leaving && !at.owed && !at.back.contains(&fence);
        let is_over = !self.state.is_current(by) || has_settled;
        if is_over {
            self.reached(QuorumSituation::AppliedLate);
        }
        if is_over && is_new {
            orphan(&mut self.state.nodes[node], by);
        }
        self.count_ghost(by, node, &reply);
        Some(())
    }

    /// The client crashes. Its requests under way are lost, and its votes end with their time.
    pub(super) fn crash(&mut self, client: u8) {
        let it = *self.state.client(client);
        match it.phase {
            QuorumPhase::Holding(_) => self.reached(QuorumSituation::CrashedHolding),
            QuorumPhase::Acquiring => self.reached(QuorumSituation::CrashedAcquiring),
            _ => {}
        }
        self.state.spent += 1;
        let by = self.state.owner(client);
        for node in &mut self.state.nodes {
            orphan(node, by);
        }
        self.lease_ended(client);
        *self.state.client_mut(client) = self.model.new_client(client);
    }

    /// Something happens to a node.
    pub(super) fn happen_to(&mut self, node: usize, event: NodeEvent) -> Option<()> {
        match event {
            NodeEvent::LoseMemory => self.lose_memory(node),
            NodeEvent::Break => self.break_vote(node)?,
            NodeEvent::Jump => self.jump(node),
            NodeEvent::Stick => self.stick(node),
        }
        Some(())
    }

    fn lose_memory(&mut self, node: usize) {
        self.state.spent += 1;
        let vote = self.state.nodes[node].vote;
        let counts = vote.is_some_and(|vote| self.state.client(vote.by.client).certified > 0);
        if counts {
            self.reached(QuorumSituation::MemoryLost);
        }
        self.model.lose_memory(&mut self.state.nodes[node]);
    }

    /// An operator who saw the fence of a vote breaks it.
    fn break_vote(&mut self, node: usize) -> Option<()> {
        let vote = self.state.nodes[node].vote?;
        let has_all = self.has_all(vote.by);
        self.state.spent += 1;
        let fence = Fence::new(vote.fence);
        self.execute(node, &Step::Break { fence });
        self.rob(vote.by, has_all, QuorumSituation::BrokenOfAll);
        if self.state.client(vote.by.client).certified > 0 {
            self.reached(QuorumSituation::Broken);
        }
        Some(())
    }

    /// The clock of a node jumps ahead by a TTL. Who does not have the votes of all nodes is robbed.
    fn jump(&mut self, node: usize) {
        self.state.spent += 1;
        if let Some(Vote { by, .. }) = self.state.nodes[node].vote {
            self.rob(by, self.has_all(by), QuorumSituation::JumpedOverAll);
        }
        let ttl = self.model.setup.ttl;
        let it = &mut self.state.nodes[node];
        it.ahead += i8::try_from(ttl).unwrap_or_default();
        pass(it, ttl.into());
    }

    /// A node counts the lock as taken for ever.
    fn stick(&mut self, node: usize) {
        self.state.spent += 1;
        let is_foreign = self.model.setup.may(QuorumFault::ForeignVote);
        self.state.nodes[node].taken = Some(if is_foreign {
            TakenBy::Program
        } else {
            TakenBy::Stranger
        });
    }

    /// Whether all nodes hold for this owner.
    fn has_all(&self, by: CallId) -> bool {
        let mut nodes = self.state.nodes.iter();
        nodes.all(|it| it.vote.is_some_and(|vote| vote.by == by))
    }

    /// A vote is taken from an owner. One that had all keeps a majority.
    fn rob(&mut self, by: CallId, has_all: bool, with_all: QuorumSituation) {
        if !self.state.is_current(by) {
            return;
        }
        let it = self.state.client_mut(by.client);
        if !has_all {
            it.is_robbed = true;
        } else if it.certified > 0 {
            self.reached(with_all);
        }
    }
}

/// Only time ends the vote and the place of this owner at a node.
fn orphan(node: &mut NodeState, by: CallId) {
    if let Some(vote) = node.vote.as_mut().filter(|vote| vote.by == by) {
        vote.is_orphan = true;
    }
    for place in node.queue.iter_mut().flatten() {
        place.is_orphan |= place.by == by;
    }
}

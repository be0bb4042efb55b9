//! The checks on each lease that is handed out, and on each vote. They use a record of their own, and never call the rules.

use super::model::QuorumTurn;
use super::setup::{QuorumFault, QuorumSetup, QuorumSituation};
use super::state::{Attempting, NODES, QuorumClient, QuorumPhase, QuorumState, Said};

/// The properties that a step can violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuorumRule {
    /// VQ2.
    Order = 1,
    /// VQ3.
    RealTime = 1 << 1,
    /// VQ4.
    LeftOver = 1 << 2,
    /// VQ6.
    Passed = 1 << 3,
}

impl QuorumTurn<'_> {
    /// A client has got a lease. Its first request was sent when `above` was the highest fence of a lease.
    pub(super) fn handed_out(&mut self, client: u8, above: u64) {
        let robs = self.model.setup.robs();
        let it = *self.state.client(client);
        let books = &mut self.state.books;
        let fence = it.certified;
        if fence <= above {
            books.broken |= QuorumRule::RealTime as u8;
        }
        // Exclusion covers it and the leases that have ended, so they are in order.
        if !it.is_robbed && fence <= books.ended || robs && books.given.contains(&fence) {
            books.broken |= QuorumRule::Order as u8;
        }
        books.highest = books.highest.max(fence);
        if robs {
            // The smallest is the least likely to be proposed again.
            books.given.sort_unstable();
            books.given[0] = fence;
        }
        if self.state.clients.iter().all(QuorumClient::holds) {
            self.reached(QuorumSituation::RobbedBelieves);
        }
    }

    /// A client gets a lease by this acquisition. The lead may have others that are first in line, and has not said so yet.
    pub(super) fn passed(&mut self, client: u8, attempt: &Attempting) {
        let knows = self.state.client(client).knows_waiters && self.model.setup.waits;
        let own = self.state.owner(client);
        let has_other = self.state.nodes[attempt.lead]
            .owners()
            .any(|(by, _)| by != own);
        if knows && !attempt.is_claim && attempt.by_lead() == Said::Open && has_other {
            self.state.books.broken |= QuorumRule::Passed as u8;
        }
    }

    /// The lease of a client is over, if it had one.
    pub(super) fn lease_ended(&mut self, client: u8) {
        let it = *self.state.client(client);
        let books = &mut self.state.books;
        if it.holds() && !it.is_robbed {
            books.ended = books.ended.max(it.certified);
        }
    }
}

/// VQ1: at most one client relies on a lease, unless a fault of the model's robbed one of them.
pub(super) fn is_exclusive(state: &QuorumState) -> bool {
    let clients = state.clients.iter();
    let believe = clients.filter(|client| client.holds() && !client.is_robbed);
    believe.count() <= 1
}

/// VQ4: a node holds or queues nothing for an owner that has settled. Nor does a node beside the lead hold for one that waits without the
/// lead's vote, and has nothing under way.
pub(super) fn settled(state: &mut QuorumState, setup: &QuorumSetup) {
    let is_left = state.nodes.iter().any(|node| {
        let mut all = node.owners();
        all.any(|(by, is_orphan)| !is_orphan && !state.is_current(by))
    });
    let has_vote = |node: usize, by| state.nodes[node].vote.is_some_and(|vote| vote.by == by);
    let is_kept = [0, 1].into_iter().any(|client| {
        let it = state.client(client);
        let by = state.owner(client);
        let lead = it.lead();
        it.phase == QuorumPhase::Waiting
            && it.has_settled()
            && !has_vote(lead, by)
            && (0..NODES).any(|node| has_vote(node, by))
    });
    if is_left || is_kept && !setup.may(QuorumFault::LateRequest) {
        state.books.broken |= QuorumRule::LeftOver as u8;
    }
}

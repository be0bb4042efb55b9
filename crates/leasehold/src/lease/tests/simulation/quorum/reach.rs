//! The nodes in reach of a lease: while they are a majority, it is not lost (V7).

use leasehold_core::Mode;

use crate::lease::hold::Hold;
use crate::lease::tests::simulation::user::Stage;

use super::network::micros;
use super::node::majority;
use super::sim::{LONGEST_TTL, QuorumSimulation};

/// The nodes that can vote for one owner.
#[derive(Default)]
pub(super) struct Reach {
    /// Since when each of them can.
    nodes: Vec<Option<u64>>,
    /// Since when a majority of them has been able to for a TTL.
    majority: Option<u64>,
    /// It was renewed by hand, for another TTL.
    is_by_hand: bool,
}

impl QuorumSimulation {
    /// Checks that a lease in use is not lost after a TTL in which a majority was in reach at each moment. A node is in reach if for a TTL
    /// its client was connected to it and did not stand still, and the node was up, had a vote, and held for no other owner.
    ///
    /// A lease that does not renew itself is not meant, nor one that was broken, or whose client was closed.
    pub(super) fn check_kept(&mut self, client: usize, hold: &Hold) -> Result<(), String> {
        // The stay of readers is renewed for the longest TTL among them.
        let ttl = match hold.mode {
            Mode::Shared => LONGEST_TTL,
            _ => hold.ttl.get(),
        };
        let (at, ttl) = (self.at, micros(ttl));
        let reach = self.reach.entry(hold.owner.clone()).or_default();
        let member = &self.members[client];
        if hold.loss().is_some() {
            // A late request of the reader that opened a stay may shorten it to a TTL in which no second renewal fits (RN4).
            let may_be_short = hold.stay.as_ref().is_some_and(|stay| stay.ttl < hold.ttl);
            let is_kept = hold.auto_renew && hold.max_until.is_none() && !may_be_short;
            let is_kept = is_kept && !reach.is_by_hand;
            let is_meant =
                is_kept && !member.client.is_closed && !self.broken.contains(&hold.owner);
            if is_meant && reach.majority.is_some_and(|since| since + ttl <= at) {
                let who = hold.owner.id();
                return Err(format!("V7: {who} is lost, with a majority in reach"));
            }
            *reach = Reach::default();
            return Ok(());
        }
        let extends =
            |stage: &Stage| matches!(stage, Stage::Extends(it, _) if it.owner == hold.owner);
        reach.is_by_hand |= member.client.users.iter().any(|user| extends(&user.stage));
        // A client knows no number of a reader. That of the certificate is the lowest, which nodes without a vote are asked for.
        let numbers = self
            .nodes
            .iter()
            .filter_map(|node| node.number_of(at, hold));
        let fence = numbers.min().unwrap_or(hold.grant);
        let is_awake = member.client.stands_still_until(true) <= at;
        reach.nodes.resize(self.nodes.len(), None);
        for (node, since) in reach.nodes.iter_mut().enumerate() {
            let is_heard = is_awake && member.links[node].connected;
            let can_vote = is_heard && self.nodes[node].has_vote_for(at, hold, fence);
            *since = can_vote.then(|| since.unwrap_or(at));
        }
        let long = reach
            .nodes
            .iter()
            .flatten()
            .filter(|since| **since + ttl <= at);
        let is_majority = long.count() >= majority(&self.nodes);
        reach.majority = is_majority.then(|| reach.majority.unwrap_or(at));
        Ok(())
    }
}

//! The client's part after an acquisition: renewals and repairs, releases, and votes that it gives back.

use leasehold_core::{Fence, HolderIdentity, Owner, Reply, Step};

use super::model::{ClientRules, QuorumTurn};
use super::round::acceptable;
use super::setup::QuorumSituation;
use super::state::{AtNode, Extended, NODES, QuorumPhase, Renewing, put};

impl QuorumTurn<'_> {
    /// The owner is over: it releases at each node, after the answers to its proposals (V2).
    pub(super) fn leave(&mut self, client: u8) {
        self.lease_ended(client);
        let it = self.state.client_mut(client);
        it.attempt = None;
        (it.certified, it.granted) = (0, 0);
        it.keeps_votes = false;
        it.renewal = None;
        it.phase = QuorumPhase::Leaving;
        for at in &mut it.at {
            *at = AtNode {
                open: at.open,
                back: at.back,
                owed: true,
                ..AtNode::default()
            };
        }
    }

    /// A node carries out the release of an owner.
    pub(super) fn release_at(&mut self, client: u8, node: usize) {
        self.state.client_mut(client).at[node].owed = false;
        let owner = self.own(client).clone();
        let (keep, fence) = (None, None);
        self.deliver(client, node, &Step::Release { owner, keep, fence });
    }

    /// A node frees a vote that its client gives back.
    pub(super) fn give_one_back(&mut self, client: u8, node: usize) {
        let back = &mut self.state.client_mut(client).at[node].back;
        let [fence, next] = *back;
        *back = [next, 0];
        let (owner, fence) = (self.own(client).clone(), Fence::new(fence));
        self.deliver(client, node, &Step::GiveBack { owner, fence });
    }

    /// A step comes to a node, unless its client cannot reach it.
    fn deliver(&mut self, client: u8, node: usize, step: &Step) {
        if !self.model.is_cut(client, node) {
            self.execute(node, step);
        }
    }

    /// A holder renews its lease at all nodes.
    pub(super) fn renew(&mut self, client: u8) {
        self.state.client_mut(client).renewal = Some(Renewing {
            age: 0,
            at: [Extended::UnderWay; NODES],
        });
    }

    /// A node carries out a renewal, and answers.
    pub(super) fn extend(&mut self, client: u8, node: usize) -> Option<()> {
        let it = self.state.client(client);
        // A node knows the hold by the fence that it stores.
        let fence = it.higher_at(node).unwrap_or(it.certified);
        let step = Step::Extend {
            owner: self.own(client).clone(),
            ttl: self.model.subject.ttl,
            fence: Some(Fence::new(fence)),
        };
        let reply = self.execute(node, &step);
        let is_held = matches!(reply, Reply::Held(_));
        let own = self.own_above(client, &reply);
        let it = self.state.client_mut(client);
        if !is_held {
            // Its vote may be newer than this renewal.
            it.at[node].votes = [own, 0];
            it.at[node].lacking |= own == 0;
        }
        let renewal = it.renewal.as_mut()?;
        renewal.at[node] = if is_held {
            Extended::Held
        } else {
            Extended::NotHeld
        };
        let renewal = *renewal;
        let number = |is: Extended| renewal.at.iter().filter(|at| **at == is).count();
        let is_enough = self.is_weak(ClientRules::RenewsByMinority);
        if number(Extended::Held) > NODES / 2 || is_enough && is_held {
            return self.renewed(client, renewal.age);
        } else if number(Extended::NotHeld) > NODES / 2 {
            self.leave(client);
        }
        Some(())
    }

    /// A majority has confirmed a renewal. The client asks the nodes that lack its vote for it.
    fn renewed(&mut self, client: u8, age: u8) -> Option<()> {
        self.reached(QuorumSituation::Renewed);
        let ttl = self.model.setup.ttl;
        let from_reply = self.is_weak(ClientRules::RenewsFromReply);
        let it = self.state.client_mut(client);
        it.renewal = None;
        if let QuorumPhase::Holding(left) = &mut it.phase {
            *left = (*left).max(if from_reply { ttl } else { ttl - age });
        }
        let certified = it.certified;
        for node in 0..NODES {
            let at = &mut self.state.client_mut(client).at[node];
            if !std::mem::take(&mut at.lacking) {
                continue;
            }
            let fence = match at.beyond.take() {
                None => certified,
                Some((least, most)) => self.within(client, acceptable(least, most)),
            };
            self.is_in_bounds(fence)?;
            put(&mut self.state.client_mut(client).at[node].open, fence).then_some(())?;
        }
        Some(())
    }

    /// The owner of core that stands for the current one of a client.
    fn own(&self, client: u8) -> &Owner {
        self.model.subject.owners.of(self.state.owner(client))
    }

    /// The fence above the certificate with which a node holds for this owner, as its refusal says; otherwise 0.
    fn own_above(&self, client: u8, reply: &Reply) -> u64 {
        let Reply::NotHeld(Some(holder)) = reply else {
            return 0;
        };
        let own = self.own(client);
        let is_own = matches!(&holder.who, HolderIdentity::Owner(by) if by == own);
        let fence = holder.fence.filter(|_| is_own).map_or(0, Fence::get);
        if fence > self.state.client(client).certified {
            fence
        } else {
            0
        }
    }
}

//! The numbers that a client proposes, by core's proposer.

use leasehold_core::{Acceptable, Block, Fence};

use super::model::{ClientRules, QuorumTurn};
use super::numbers::clock;
use super::round::{lead_of, proposer};
use super::setup::Recalls;

impl QuorumTurn<'_> {
    /// Chooses a number above all that the owner may hold, and within the bounds of the nodes.
    pub(super) fn choose(&mut self, client: u8, bounds: Option<Acceptable>) -> u64 {
        let wall = clock(self.model.setup.clients[usize::from(client)]);
        let forgets = self.is_weak(ClientRules::ForgetsVotes);
        let it = self.state.client_mut(client);
        // A vote that is given back must not be asked for again: it would be freed afterwards (QR9).
        let back = it.back.iter().flatten().copied().max();
        let back = back.filter(|_| !forgets).unwrap_or_default();
        let highest = it.highest().max(back);
        let mut proposer = proposer(wall, it.aim, it.next);
        if let Some(bounds) = bounds {
            proposer.learn(wall, bounds);
            it.aim = wall.saturating_add_signed(lead_of(&proposer));
        }
        let above = |fence: u64| Fence::new(if fence > 0 { fence + 1 } else { 0 });
        let bounds = match bounds {
            Some(bounds) => Acceptable {
                least: bounds.least.max(above(back)),
                ..bounds
            },
            None => Acceptable {
                least: above(highest),
                most: Fence::MAX,
            },
        };
        let fences = proposer.propose(Block::ONE, wall, Some(bounds));
        it.next = fences.last().get() + 1;
        fences.first.get()
    }

    /// Chooses a number within the bounds of a node that lacks a vote.
    pub(super) fn within(&mut self, client: u8, least: u64, most: u64) -> u64 {
        let wall = clock(self.model.setup.clients[usize::from(client)]);
        let it = self.state.client_mut(client);
        let bounds = Acceptable {
            least: Fence::new(least),
            most: Fence::new(most),
        };
        let mut proposer = proposer(wall, it.aim, it.next);
        let fences = proposer.propose(Block::ONE, wall, Some(bounds));
        it.next = fences.last().get() + 1;
        fences.first.get()
    }

    /// Whether a proposal of this number is within the bounds of the model.
    pub(super) fn is_in_bounds(&self, fence: u64) -> Option<()> {
        let learns = self.model.setup.recalls == Recalls::Clocks;
        let aims = self.state.clients.iter().filter(|_| learns);
        let aims = aims.map(|client| client.aim);
        let clocks = self.model.setup.clients.iter();
        let most = clocks.map(|ahead| clock(*ahead)).chain(aims).max()?;
        (fence <= most + self.model.setup.above).then_some(())
    }
}

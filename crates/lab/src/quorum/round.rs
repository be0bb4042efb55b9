//! Core's [`Round`] and [`Proposer`] in the model: they are made of its state for each use. And the numbers that a client proposes.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, Proposer, Round, Verdict};
use leasehold_core::{Acceptable, Block, Busy, Fence, Held, HolderIdentity, HolderView, Reply};

use super::model::{ClientRules, QuorumTurn};
use super::node::one;
use super::numbers::clock;
use super::setup::Recalls;
use super::state::{Attempting, NODES, Said};

/// The verdict of core's round on what the nodes said. Their order does not matter, unless the round was refused.
pub(super) fn verdict(attempt: &Attempting) -> Verdict {
    let nodes = u8::try_from(NODES).unwrap_or(u8::MAX);
    let asked = Fence::new(attempt.fence);
    let mut round = Round::new(nodes, one(attempt.fence));
    let mut verdict = Verdict::Open;
    for (node, said) in attempt.said.iter().enumerate() {
        let held = |fence| {
            Reply::Held(Held {
                fence: Some(Fence::new(fence)),
                block: Block::ONE,
                queued: 0,
            })
        };
        let reply = match *said {
            Said::Open => continue,
            Said::For => held(attempt.fence),
            Said::Higher(fence) => held(fence),
            Said::Behind(least, most) => Reply::NoVote(NoVote::Behind(acceptable(least, most))),
            Said::Busy(_) | Said::Foreign { .. } => Reply::Busy(Busy {
                holder: HolderView::new(
                    HolderIdentity::Foreign {
                        kind: String::new(),
                        value: Vec::new(),
                    },
                    None,
                    None,
                    None,
                ),
                ahead: 0,
                poll_after: Duration::ZERO,
                at_us: 0,
            }),
            Said::NoVote => Reply::NoVote(NoVote::NotANode),
            Said::Failed => {
                verdict = round.silent(node);
                continue;
            }
        };
        verdict = round.heard(node, asked, &reply);
    }
    verdict
}

/// The bounds of core for these numbers.
pub(super) const fn acceptable(least: u64, most: u64) -> Acceptable {
    Acceptable {
        least: Fence::new(least),
        most: Fence::new(most),
    }
}

pub(super) fn behind(bounds: Acceptable) -> Said {
    Said::Behind(bounds.least.get(), bounds.most.get())
}

/// Core's proposer, in the state of a client that aims at this number and has proposed all below `next`.
fn proposer(wall: u64, aim: u64, next: u64) -> Proposer {
    let mut proposer = Proposer::default();
    let around = if aim < wall {
        acceptable(0, aim)
    } else {
        acceptable(aim, Fence::MAX.get())
    };
    proposer.learn(wall, around);
    if next > 0 {
        let last = acceptable(next - 1, next - 1);
        proposer.propose(Block::ONE, 0, Some(last));
    }
    proposer
}

/// The microseconds that a proposer adds to the client's clock.
fn lead_of(proposer: &Proposer) -> i64 {
    /// Later than all that the model proposes.
    const LATE: u64 = 1 << 50;
    let fences = proposer.clone().propose(Block::ONE, LATE, None);
    let first = i64::try_from(fences.first.get()).unwrap_or(i64::MAX);
    first - i64::try_from(LATE).unwrap_or_default()
}

impl QuorumTurn<'_> {
    /// Chooses a number above all that the owner may hold, and within the bounds of the nodes.
    pub(super) fn choose(&mut self, client: u8, bounds: Option<Acceptable>) -> u64 {
        let wall = clock(self.model.setup.clients[usize::from(client)]);
        let forgets = self.is_weak(ClientRules::ForgetsVotes);
        let it = self.state.client_mut(client);
        // A vote that is given back must not be asked for again: it would be freed afterwards (QR9).
        let back = it.at.iter().flat_map(|at| at.back).max();
        let back = back.filter(|_| !forgets).unwrap_or_default();
        let highest = it.highest().max(back);
        if let Some(bounds) = bounds {
            let mut proposer = proposer(wall, it.aim, it.next);
            proposer.learn(wall, bounds);
            it.aim = wall.saturating_add_signed(lead_of(&proposer));
        }
        let above = |fence: u64| if fence > 0 { fence + 1 } else { 0 };
        let bounds = match bounds {
            Some(Acceptable { least, most }) => {
                acceptable(least.get().max(above(back)), most.get())
            }
            None => acceptable(above(highest), Fence::MAX.get()),
        };
        self.within(client, bounds)
    }

    /// Chooses a number within these bounds.
    pub(super) fn within(&mut self, client: u8, bounds: Acceptable) -> u64 {
        let wall = clock(self.model.setup.clients[usize::from(client)]);
        let it = self.state.client_mut(client);
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

//! One step of a node: core's rules take it, on a [`World`] that is made of the model's state.

use leasehold_core::quorum::{Mark, Proposal};
use leasehold_core::{
    Block, Fence, Fences, Foreign, Holder, Mode, Now, Owner, Reply, Step, UnknownPresence, Wait,
    Waiter, World,
};

use super::model::{QuorumModel, QuorumTurn, TICK_MS};
use super::numbers::{OLD_US, clock};
use super::state::{LateProposal, NodeState, Queued, Remembers, TakenBy, Vote};
use crate::frame::CallId;

/// Longer than a model lasts.
const ENDLESS_MS: u64 = 1 << 40;

/// What a node with this mark knows about its own past.
fn remembers(mark: Option<Mark>, now_ms: u64) -> Remembers {
    match mark {
        None => Remembers::Nothing,
        Some(Mark { made_at_ms: 0, .. }) => Remembers::All,
        Some(mark) => Remembers::Since(now_ms.saturating_sub(mark.made_at_ms)),
    }
}

/// A fence as a block of one.
pub(super) const fn one(fence: u64) -> Fences {
    Fences {
        first: Fence::new(fence),
        block: Block::ONE,
    }
}

impl QuorumModel {
    /// A node that remembers everything. It has voted before, and holds nothing now.
    pub(super) fn new_node(&self, node: usize) -> NodeState {
        NodeState {
            votes: [None; 2],
            queue: [None; 2],
            taken: None,
            counter: Some(OLD_US),
            remembers: Remembers::All,
            ahead: self.setup.nodes[node],
        }
    }

    /// The time on the clock of a node.
    pub(super) fn now(node: &NodeState) -> Now {
        Now::at_micros(clock(node.ahead))
    }

    /// The proposal of a fence by an owner.
    pub(super) fn proposal(&self, by: CallId, proposal: &LateProposal) -> Step {
        Step::Propose(Proposal {
            owner: self.subject.owners.of(by).clone(),
            is_shared: proposal.is_shared,
            ttl: self.subject.ttl,
            fences: one(proposal.fence),
            terms: self.subject.terms,
            wait: proposal.waits.then_some(Wait { listening: true }),
        })
    }

    /// A node has lost its memory.
    pub(super) fn lose_memory(&self, node: &mut NodeState) {
        let now = Self::now(node);
        let mark = (self.subject.rules.lost)(self.subject.terms, now.millis());
        *node = NodeState {
            votes: [None; 2],
            queue: [None; 2],
            counter: None,
            remembers: remembers(mark, now.millis()),
            ..*node
        };
    }

    fn world(&self, node: &NodeState) -> World {
        let now = Self::now(node);
        let mark = |made_at_ms| Mark {
            terms: self.subject.terms,
            made_at_ms,
        };
        let mut world = World::node(match node.remembers {
            Remembers::Nothing => None,
            Remembers::All => Some(mark(0)),
            Remembers::Since(ago_ms) => Some(mark(now.millis() - ago_ms)),
        });
        if let (Some(memory), Some(counter)) = (&mut world.node, node.counter) {
            memory.counter(&self.subject.name).0 = Some(Fence::new(counter));
        }
        let is_used = node.votes[0].is_some() || node.taken.is_some() || node.queue[0].is_some();
        if !is_used {
            return world;
        }
        let lock = world.entry(&self.subject.name);
        let holder = |owner: &Owner, phase, number, left_ms| Holder {
            slot: None,
            vote: (phase > 0).then_some(Fence::new(number)),
            owner: owner.clone(),
            mode: mode(phase > 0),
            fences: one(if phase > 0 { phase } else { number }),
            expires_at_ms: now.millis() + left_ms,
            kept: false,
        };
        let owners = &self.subject.owners;
        let votes = node.votes.iter().flatten();
        let votes =
            votes.map(|vote| holder(owners.of(vote.by), vote.phase, vote.fence, vote.left_ms));
        lock.holders.extend(votes);
        lock.queue
            .extend(node.queue.iter().flatten().map(|place| Waiter {
                owner: self.subject.owners.of(place.by).clone(),
                mode: mode(place.is_shared),
                ttl: self.subject.ttl,
                block: Block::ONE,
                listening: true,
                seen_until_ms: now.millis() + place.left_ms,
            }));
        match node.taken {
            None => {}
            Some(TakenBy::Stranger) => {
                let stranger = holder(&self.subject.stranger, 0, 1, ENDLESS_MS);
                lock.holders.push(stranger);
            }
            Some(TakenBy::Program) => {
                lock.foreign = Some(Foreign {
                    kind: "string".to_owned(),
                    value: Vec::new(),
                    expires_at_ms: None,
                });
            }
        }
        world
    }

    /// Takes a node's state back from core.
    fn read(&self, node: &mut NodeState, world: &mut World) {
        let now_ms = Self::now(node).millis();
        let before: Vec<(CallId, bool)> = node.owners().collect();
        let is_orphan = |by| before.contains(&(by, true));
        let lock = world.get(&self.subject.name);
        let holders = lock.into_iter().flat_map(|lock| &lock.holders);
        let mut votes = holders.filter_map(|holder| {
            let by = self.subject.owner_id(&holder.owner)?;
            let is_shared = holder.mode == Mode::Shared;
            Some(Vote {
                by,
                fence: holder.vote.unwrap_or(holder.fences.first).get(),
                phase: if is_shared {
                    holder.fences.first.get()
                } else {
                    0
                },
                left_ms: holder.expires_at_ms.saturating_sub(now_ms),
                is_orphan: is_orphan(by),
            })
        });
        node.votes = std::array::from_fn(|_| votes.next());
        assert!(votes.next().is_none(), "one owner of each client");
        node.queue = [None; 2];
        let waiters = lock.into_iter().flat_map(|lock| &lock.queue);
        let waiters =
            waiters.filter_map(|waiter| Some((self.subject.owner_id(&waiter.owner)?, waiter)));
        for (place, (by, waiter)) in node.queue.iter_mut().zip(waiters) {
            let left_ms = waiter.seen_until_ms.saturating_sub(now_ms);
            *place = Some(Queued {
                by,
                is_shared: waiter.mode == Mode::Shared,
                // All steps are taken at whole ticks.
                left_ms: left_ms - left_ms % TICK_MS,
                is_orphan: is_orphan(by),
            });
        }
        if let Some(memory) = &mut world.node {
            node.remembers = remembers(memory.mark, now_ms);
            node.counter = memory.counter(&self.subject.name).0.map(Fence::get);
        }
    }
}

const fn mode(is_shared: bool) -> Mode {
    if is_shared {
        Mode::Shared
    } else {
        Mode::Exclusive
    }
}

impl QuorumTurn<'_> {
    /// A node takes a step, and replies.
    pub(super) fn execute(&mut self, node: usize, step: &Step) -> Reply {
        let (model, it) = (self.model, &mut self.state.nodes[node]);
        let (apply, name) = (model.subject.rules.node, &model.subject.name);
        let mut world = model.world(it);
        let now = QuorumModel::now(it);
        let reply = apply(&mut world, now, name, step, &UnknownPresence).reply;
        model.read(it, &mut world);
        self.said = Some(reply.clone());
        reply
    }
}

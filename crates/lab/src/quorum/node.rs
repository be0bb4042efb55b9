//! One step of a node: core's rules take it, on a [`World`] that is made of the model's state.

use leasehold_core::quorum::{Mark, Proposal};
use leasehold_core::{
    Block, Fence, Fences, Foreign, Holder, Mode, Now, Owner, Reply, Step, UnknownPresence, Wait,
    Waiter, World,
};

use super::model::{QuorumModel, QuorumTurn, TICK_MS};
use super::numbers::{OLD_US, clock};
use super::state::{NodeState, Queued, Remembers, TakenBy, Vote};
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
            vote: None,
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
    pub(super) fn proposal(&self, by: CallId, fence: u64, waits: bool) -> Step {
        Step::Propose(Proposal {
            owner: self.subject.owners.of(by).clone(),
            is_shared: false,
            ttl: self.subject.ttl,
            fences: one(fence),
            terms: self.subject.terms,
            wait: waits.then_some(Wait { listening: true }),
        })
    }

    /// A node has lost its memory.
    pub(super) fn lose_memory(&self, node: &mut NodeState) {
        let now = Self::now(node);
        let mark = (self.subject.rules.lost)(self.subject.terms, now.millis());
        *node = NodeState {
            vote: None,
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
        let is_used = node.vote.is_some() || node.taken.is_some() || node.queue[0].is_some();
        if !is_used {
            return world;
        }
        let lock = world.entry(&self.subject.name);
        let holder = |owner: &Owner, fence, left_ms| Holder {
            slot: None,
            vote: None,
            owner: owner.clone(),
            mode: Mode::Exclusive,
            fences: one(fence),
            expires_at_ms: now.millis() + left_ms,
            kept: false,
        };
        let owners = &self.subject.owners;
        let vote = node.vote.iter();
        let vote = vote.map(|vote| holder(owners.of(vote.by), vote.fence, vote.left_ms));
        lock.holders.extend(vote);
        lock.queue
            .extend(node.queue.iter().flatten().map(|place| Waiter {
                owner: self.subject.owners.of(place.by).clone(),
                mode: Mode::Exclusive,
                ttl: self.subject.ttl,
                block: Block::ONE,
                listening: true,
                seen_until_ms: now.millis() + place.left_ms,
            }));
        match node.taken {
            None => {}
            Some(TakenBy::Stranger) => {
                let stranger = holder(&self.subject.stranger, 1, ENDLESS_MS);
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
        let holder = lock.and_then(|lock| lock.holders.first());
        node.vote = holder.and_then(|holder| {
            let by = self.subject.owner_id(&holder.owner)?;
            Some(Vote {
                by,
                fence: holder.fences.first.get(),
                left_ms: holder.expires_at_ms.saturating_sub(now_ms),
                is_orphan: is_orphan(by),
            })
        });
        node.queue = [None; 2];
        let waiters = lock.into_iter().flat_map(|lock| &lock.queue);
        let waiters =
            waiters.filter_map(|waiter| Some((self.subject.owner_id(&waiter.owner)?, waiter)));
        for (place, (by, waiter)) in node.queue.iter_mut().zip(waiters) {
            let left_ms = waiter.seen_until_ms.saturating_sub(now_ms);
            *place = Some(Queued {
                by,
                // All steps are taken at whole ticks.
                left_ms: left_ms - left_ms % TICK_MS,
                is_orphan: is_orphan(by),
            });
        }
        let Some(memory) = &mut world.node else {
            return;
        };
        node.remembers = remembers(memory.mark, now_ms);
        node.counter = memory.counter(&self.subject.name).0.map(Fence::get);
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

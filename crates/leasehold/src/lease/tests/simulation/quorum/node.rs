//! A node of a simulated quorum: the rules of core, a clock, and its data on disk.

use std::collections::HashSet;

use leasehold_core::quorum::{Mark, NodeMemory, QuorumTerms};
use leasehold_core::{
    Block, ClientId, Fence, Fences, Holder, LockName, Mode, Now, Outcome, Owner, Presence, Reply,
    Step, Waiter, World,
};

use super::Rules;
use crate::lease::hold::Hold;
use crate::lease::tests::simulation::sim::SECOND;

pub(super) struct Node {
    pub(super) world: World,
    /// Its clock at the begin of the history, in microseconds.
    clock_us: u64,
    /// How fast it runs, in thousandths of the time of the simulation.
    rate: u64,
    /// Older data, as a disk may keep it.
    disk: World,
    /// How often it was started.
    pub(super) starts: u32,
    /// It was started again with data that may be old, or belong to another node. Until it votes again, it extends nothing.
    is_strange: bool,
    /// Owners that it held for no more after a release. A late proposal may still get its vote, which the client then takes back (V1).
    released: HashSet<Owner>,
    /// Until when it answers none.
    pub(super) down_until: u64,
    /// The clients that are connected.
    pub(super) connected: HashSet<ClientId>,
}

/// Only connected clients receive wakes.
struct Hears<'a>(&'a HashSet<ClientId>);

impl Presence for Hears<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        !self.0.contains(&waiter.owner.client())
    }
}

/// How many of the nodes hold for a lease.
pub(super) fn votes(nodes: &[Node], at: u64, hold: &Hold) -> usize {
    let holds = |node: &&Node| node.holds_for(at, &hold.name, &hold.owner);
    nodes.iter().filter(holds).count()
}

/// Whether a majority of the nodes has released this owner, each at some moment, or does not hold for it (U2).
pub(super) fn are_free(nodes: &[Node], at: u64, name: &LockName, owner: &Owner) -> bool {
    let is_free = |node: &&Node| node.released.contains(owner) || !node.holds_for(at, name, owner);
    nodes.iter().filter(is_free).count() >= majority(nodes)
}

pub(super) const fn majority(nodes: &[Node]) -> usize {
    nodes.len() / 2 + 1
}

impl Node {
    /// A node of a new quorum.
    pub(super) fn new(terms: QuorumTerms, clock_us: u64, rate: u64) -> Self {
        let mark = Mark {
            terms,
            made_at_ms: 0,
        };
        let world = World::node(Some(mark));
        Self {
            disk: world.clone(),
            world,
            clock_us,
            rate,
            starts: 0,
            is_strange: false,
            released: HashSet::new(),
            down_until: 0,
            connected: HashSet::new(),
        }
    }

    fn now(&self, at: u64) -> Now {
        Now::at_micros(self.clock_us + at * self.rate / 1_000)
    }

    pub(super) fn step(&mut self, at: u64, name: &LockName, step: &Step) -> Outcome {
        let now = self.now(at);
        if let Some(mark) = self.world.node.as_ref().and_then(|memory| memory.mark) {
            self.is_strange &= mark.quarantined_for(now).is_some();
        }
        if self.is_strange && matches!(step, Step::Extend { .. }) {
            let reply = Reply::NotHeld(None);
            let outcome = self
                .world
                .apply(now, name, &Step::Inspect, &Hears(&self.connected));
            return Outcome { reply, ..outcome };
        }
        let outcome = self.world.apply(now, name, step, &Hears(&self.connected));
        if let Step::Release { owner, .. } = step
            && !self.holds_for(at, name, owner)
        {
            self.released.insert(owner.clone());
        }
        outcome
    }

    /// The holders at `at`.
    fn holders(&self, at: u64, name: &LockName) -> impl Iterator<Item = &Holder> {
        let now_ms = self.now(at).millis();
        let lock = self.world.get(name);
        let holders = lock.into_iter().flat_map(|lock| &lock.holders);
        holders.filter(move |holder| holder.expires_at_ms >= now_ms)
    }

    pub(super) fn holds_for(&self, at: u64, name: &LockName, owner: &Owner) -> bool {
        let mut holders = self.holders(at, name);
        holders.any(|holder| holder.owner == *owner)
    }

    /// The number of its vote for a reader.
    pub(super) fn number_of(&self, at: u64, hold: &Hold) -> Option<Fence> {
        let mut holders = self.holders(at, &hold.name);
        holders.find(|holder| holder.owner == hold.owner)?.vote
    }

    /// Whether it would hold for this lease if it were asked at `at` (V7). The fence may be too far ahead of its clock.
    pub(super) fn has_vote_for(&self, at: u64, hold: &Hold, fence: Fence) -> bool {
        let now = self.now(at);
        let mark = self.world.node.as_ref().and_then(|memory| memory.mark);
        let votes = mark.is_some_and(|mark| mark.quarantined_for(now).is_none());
        let mut others = self.holders(at, &hold.name);
        let is_waited_for = || {
            let lock = self.world.get(&hold.name);
            lock.is_some_and(|lock| !lock.queue.is_empty())
        };
        // Nobody joins readers while a writer waits.
        let is_beside = |other: &Holder| {
            hold.mode == Mode::Shared && other.mode == Mode::Shared && !is_waited_for()
        };
        let is_free = self.holds_for(at, &hold.name, &hold.owner) || others.all(is_beside);
        let most = now.wall_us + 10 * SECOND;
        self.down_until <= at && votes && is_free && fence.get() <= most
    }

    /// Its locks at `at`.
    pub(super) fn look(&mut self, at: u64) -> &World {
        let now = self.now(at);
        self.world.sweep(now);
        &self.world
    }

    /// Writes its data to disk.
    pub(super) fn save(&mut self) {
        self.disk = self.world.clone();
    }

    /// Starts again with all its data, which it knows to be complete.
    pub(super) fn restart(&mut self) {
        self.starts += 1;
        self.connected.clear();
    }

    /// Starts again with other data: those on its disk, or those of another node. It counts its memory as lost.
    pub(super) fn load(&mut self, data: World, rules: Rules) {
        self.world = data;
        if rules != Rules::OldDataIsTrusted {
            // Its waiters are none of this node's.
            let names: Vec<LockName> = self.world.names().cloned().collect();
            for name in names {
                self.world.entry(&name).queue.clear();
            }
            self.world.node = Some(NodeMemory::default());
            self.is_strange = true;
        }
        self.restart();
    }

    pub(super) fn load_from_disk(&mut self, rules: Rules) {
        self.load(self.disk.clone(), rules);
    }

    /// Starts again without data.
    pub(super) fn lose_data(&mut self, rules: Rules) {
        let mark = self.world.node.as_ref().and_then(|memory| memory.mark);
        // Somebody marks it as a node of a new quorum.
        let mark = mark.filter(|_| rules == Rules::NoQuarantine);
        let mark = mark.map(|mark| Mark {
            made_at_ms: 0,
            ..mark
        });
        self.world = World::node(mark);
        self.disk = self.world.clone();
        self.restart();
    }

    /// A client with a clock of its own has locked another name of this bucket.
    pub(super) fn lock_other_name(&mut self, at: u64, name: &LockName, ahead_us: u64) {
        let wall_us = self.now(at).wall_us;
        if let Some(memory) = &mut self.world.node {
            let counter = NodeMemory::counter(memory, name);
            let fences = Fences {
                first: Fence::new(wall_us + ahead_us),
                block: Block::ONE,
            };
            if !counter.is_lost() {
                // A refused number changes nothing.
                let acceptable = counter.acceptable(wall_us, wall_us + 10 * SECOND);
                counter.accept(fences, acceptable).ok();
            }
        }
    }
}

//! The store of a simulation: the rules of core, and the faults of a server.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::{
    ClientId, Holder, LockName, Now, Outcome, Owner, Presence, Reply, Step, Waiter, World,
};

/// Where its time of day begins: 2026-01-01, in microseconds.
const WALL: u64 = 1_767_225_600_000_000;

/// The reading of the server's clock at the start, without the random offset, in microseconds.
const CLOCK: u64 = 1_000_000_000_000;

pub(super) struct Server {
    pub(super) world: World,
    /// The data of a replica.
    replica: World,
    /// The server's clock at time 0 of the simulation.
    clock_us: u64,
    wall_us: u64,
    /// True once its time of day was set.
    pub(super) was_set: bool,
    /// How often it was replaced.
    pub(super) lineage: u32,
    /// The clients that are connected.
    pub(super) connected: HashSet<ClientId>,
    /// Owners whose locks were broken.
    pub(super) broken: HashSet<Owner>,
    /// Owners that the server has released. A later request of such an owner also puts it into `overtaken`.
    pub(super) released: HashSet<Owner>,
    pub(super) overtaken: HashSet<Owner>,
    /// Owners whose locks were to stay taken, as the server was told.
    pub(super) kept: HashSet<Owner>,
}

/// Only connected clients receive wakes.
struct Hears<'a>(&'a HashSet<ClientId>);

impl Presence for Hears<'_> {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        !self.0.contains(&waiter.owner.client())
    }
}

impl Server {
    pub(super) fn new(offset_us: u64) -> Self {
        Self {
            world: World::default(),
            replica: World::default(),
            clock_us: CLOCK + offset_us,
            wall_us: WALL,
            was_set: false,
            lineage: 0,
            connected: HashSet::new(),
            broken: HashSet::new(),
            released: HashSet::new(),
            overtaken: HashSet::new(),
            kept: HashSet::new(),
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.clock_us - CLOCK
    }

    fn now(&self, at: u64) -> Now {
        Now {
            clock_us: self.clock_us + at,
            wall_us: self.wall_us + at,
        }
    }

    pub(super) fn step(&mut self, at: u64, name: &LockName, step: &Step) -> Outcome {
        let now = self.now(at);
        let hears = Hears(&self.connected);
        let outcome = self.world.apply(now, name, step, &hears);
        match (step, &outcome.reply) {
            (Step::Release { owner, keep, .. }, Reply::Released) => {
                self.released.insert(owner.clone());
                self.kept.extend(keep.map(|_| owner.clone()));
            }
            (Step::Acquire { owner, .. } | Step::Extend { owner, .. }, _)
                if self.released.contains(owner) =>
            {
                self.overtaken.insert(owner.clone());
            }
            _ => {}
        }
        outcome
    }

    /// The time of the simulation at which the lock of this holder expires.
    pub(super) fn expiry(&self, holder: &Holder) -> u64 {
        // The holder counts in its last millisecond.
        ((holder.expires_at_ms + 1) * 1_000).saturating_sub(self.clock_us)
    }

    /// Its locks at `at`.
    pub(super) fn look(&mut self, at: u64) -> &World {
        let now = self.now(at);
        self.world.sweep(now);
        &self.world
    }

    /// Copies all data to the replica.
    pub(super) fn replicate(&mut self) {
        self.replica = self.world.clone();
    }

    /// The replica takes over, with a clock of its own.
    pub(super) fn fail_over(&mut self, offset_us: u64) {
        self.world = self.replica.clone();
        self.clock_us = CLOCK + offset_us;
        self.lineage += 1;
    }

    /// Sets the time of day back or forward.
    pub(super) fn step_wall(&mut self, by: Duration, back: bool) {
        let by = u64::try_from(by.as_micros()).unwrap();
        self.was_set = true;
        self.wall_us = if back {
            self.wall_us - by
        } else {
            self.wall_us + by
        };
    }

    /// Breaks a lock, if it has a holder: the hold of the first one, and that of all readers beside it.
    pub(super) fn break_lock(&mut self, at: u64, name: &LockName) -> Option<Outcome> {
        let holders = &self.look(at).get(name)?.holders;
        let fence = holders.first()?.fences.first;
        let meant = holders.iter().filter(|holder| holder.fences.first == fence);
        let owners: Vec<_> = meant.map(|holder| holder.owner.clone()).collect();
        self.broken.extend(owners);
        let outcome = self.step(at, name, &Step::Break { fence });
        // A reader that was let in by this step, into the phase that it breaks, was told all the same.
        let holders = self.world.get(name).map(|lock| &lock.holders);
        let holds =
            |owner: &Owner| holders.is_some_and(|all| all.iter().any(|it| it.owner == *owner));
        let told = outcome.wakes.iter().map(|wake| &wake.owner);
        let freed: Vec<_> = told.filter(|owner| !holds(owner)).cloned().collect();
        self.broken.extend(freed);
        Some(outcome)
    }
}

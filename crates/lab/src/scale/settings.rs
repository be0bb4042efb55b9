//! The assumptions of an experiment. A number that is not here is a rule of core.

use std::time::Duration;

/// How clients wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMethod {
    /// Leasehold: a queue in the store; a release grants the lock to the first in line and wakes it.
    Leasehold,
    /// `SET NX`, repeated after a pause.
    Poller,
    /// `SET NX`, repeated after each release, which is broadcast to all.
    Broadcast,
}

impl WaitMethod {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Leasehold, Self::Poller, Self::Broadcast];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Poller => "poller",
            Self::Broadcast => "broadcast",
        }
    }
}

/// How one in a hundred clients, at least one, ends while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Its process is gone and its connection closed: the server knows that it has no subscription.
    Dead,
    /// It is stopped, or its host is gone: the server does not notice, grants it the lock, and waits for its claim.
    Stuck,
}

/// One experiment.
#[derive(Debug, Clone)]
pub struct ScaleSettings {
    /// The number of clients.
    pub clients: u32,
    /// The seed of the random numbers.
    pub seed: u64,
    /// How long a client holds the lock.
    pub section: Duration,
    /// The think time: how long after a release the same client wants the lock again, plus or minus a half.
    pub think: Duration,
    /// How long a message takes one way.
    pub latency: Duration,
    /// The lease.
    pub ttl: Duration,
    /// How long the server is busy with a script: each step of Leasehold, compare-and-delete of the others.
    pub script: Duration,
    /// How long it is busy with `SET NX`.
    pub set: Duration,
    /// The additional time of `PUBLISH` to one subscriber.
    pub publish: Duration,
    /// The additional time of each receiver of a broadcast.
    pub push: Duration,
    /// The poller's pause, plus or minus a half.
    pub pause: Duration,
    /// After how long without a broadcast a client tries anyway.
    pub safety: Duration,
    /// How many hand-overs are measured; by default, as many as a run of some seconds allows.
    pub hand_overs: Option<u64>,
    /// How waiting clients end, if any do.
    pub crash: Option<Crash>,
    /// Of the polls from deep in the queue, one in so many is a step of core; the others only occupy the server.
    pub deep_polls: u64,
}

/// The number of places from the head of the queue beyond which a waiter counts as deep: far beyond the 1,200 or so where
/// `poll_after` still changes.
pub(super) const DEEP: u64 = 2_000;

impl Default for ScaleSettings {
    fn default() -> Self {
        Self {
            clients: 100,
            seed: 1,
            section: Duration::from_millis(5),
            think: Duration::from_millis(20),
            latency: Duration::from_micros(50),
            ttl: Duration::from_secs(30),
            script: Duration::from_micros(10),
            set: Duration::from_micros(2),
            publish: Duration::from_micros(5),
            push: Duration::from_micros(1),
            pause: Duration::from_millis(50),
            safety: Duration::from_secs(15),
            hand_overs: None,
            crash: None,
            deep_polls: 1,
        }
    }
}

impl ScaleSettings {
    /// How many hand-overs to measure: more than ten turns for each client where that is feasible, otherwise as many as about a
    /// minute allows.
    pub(super) fn turns(&self, way: WaitMethod) -> u64 {
        const EVENTS: u64 = 40_000_000;
        let clients = u64::from(self.clients);
        let feasible = match way {
            // Each new place in a long queue costs a scan of the queue.
            WaitMethod::Leasehold if clients > 200_000 => 1_000,
            WaitMethod::Leasehold if clients > 20_000 => 2_000,
            WaitMethod::Leasehold => u64::MAX,
            // As long as the server keeps up, one in ten asks during a turn.
            WaitMethod::Poller if clients < 20_000 => EVENTS / (10 + clients / 3),
            WaitMethod::Poller => EVENTS / (3 * clients),
            WaitMethod::Broadcast => EVENTS / (10 + 3 * clients),
        };
        let wanted = (clients * 11).clamp(2_000, 110_000);
        self.hand_overs.unwrap_or(wanted.min(feasible).max(20))
    }
}

/// Nanoseconds of virtual time.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

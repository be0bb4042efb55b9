//! What a campaign said that it would do. Must never hold what was observed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The line of `campaign.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Campaign {
    /// The version of the format: 1.
    pub format: u32,
    /// What the run is called.
    pub run: String,
    /// What its schedule was drawn from.
    pub seed: u64,
    /// The TTL of every lease, in milliseconds.
    pub ttl_ms: u64,
    /// How many workers ran at a time.
    pub workers: u64,
    /// How many locks they fought for.
    pub locks: u64,
    /// What the resource asked for.
    pub resource: Resource,
    /// Whether the run must show what goes wrong without a protection.
    pub control: bool,
    /// `leasehold`, or the name of a rung of the ladder.
    pub system: String,
    /// How many faults of each kind there were to be at least.
    #[serde(default)]
    pub planned: BTreeMap<FaultKind, u64>,
    /// What the run is held to.
    #[serde(default)]
    pub bounds: Bounds,
}

impl Campaign {
    /// Whether the lock itself is held to its promises: a rung of the ladder in a control is not.
    pub(crate) fn trusts_the_lock(&self) -> bool {
        !self.control || self.system == "leasehold"
    }

    pub(crate) fn ttl_ns(&self) -> u64 {
        self.ttl_ms.saturating_mul(1_000_000)
    }
}

/// What a campaign is held to, in milliseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Bounds {
    /// How long an acquire may take after the faults, for itself and again for each one ahead of it (I10). Without it
    /// liveness is not judged.
    #[serde(default)]
    pub acquire_after_calm_ms: Option<u64>,
    /// For how long after a TTL an acquire without an outcome may still hold the lock (I8).
    #[serde(default)]
    pub orphan_ms: u64,
    /// How late a process may come to write that something happened, when it was not stopped (I7, I9): 25 unless stated.
    #[serde(default = "scheduling")]
    pub scheduling_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            acquire_after_calm_ms: None,
            orphan_ms: 0,
            scheduling_ms: scheduling(),
        }
    }
}

impl Bounds {
    pub(crate) fn scheduling_ns(self) -> u64 {
        self.scheduling_ms.saturating_mul(1_000_000)
    }

    pub(crate) fn orphan_ns(self) -> u64 {
        self.orphan_ms.saturating_mul(1_000_000)
    }
}

fn scheduling() -> u64 {
    25
}

/// What the resource asks of who comes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Nothing.
    Unfenced,
    /// The fence with each write.
    WriteFenced,
    /// The fence with each read and each write.
    Fenced,
}

/// What the nemesis can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// SIGSTOP to a worker, SIGCONT later.
    StopWorker,
    /// SIGKILL to a worker.
    KillWorker,
    /// SIGSTOP to the server, SIGCONT later.
    StopServer,
    /// SIGKILL to the server, and a new one on its data.
    KillServer,
    /// `SCRIPT FLUSH`.
    ScriptFlush,
    /// `CLIENT KILL` of the workers' connections.
    ClientKill,
    /// No memory left for writes, for a while.
    Memory,
    /// Clients are led to a replica that has not followed the server since the fault began: what was stored since then is lost.
    Failover,
    /// Some connections carry nothing for a while, in neither direction. What was sent meanwhile arrives after it.
    BlackHole,
    /// The same, but only requests are held back.
    BlackHoleRequests,
    /// The same, but only what the server says is held back.
    BlackHoleReplies,
    /// Keys beside a lock are deleted, as by eviction: its queue, what is known of its waiters; or the counter of fences. Never the lock itself.
    Evict,
    /// The server's wall clock jumps forward: what was stored before it ends that much too early.
    ClockForward,
    /// The server's wall clock jumps back: what was stored before it ends that much too late.
    ClockBack,
}

impl FaultKind {
    /// Whether it happens to a worker; else it happens to the server.
    pub(crate) fn is_of_a_worker(self) -> bool {
        matches!(self, Self::StopWorker | Self::KillWorker)
    }

    /// Whether it takes some time, or has no effect.
    pub(crate) fn lasts(self) -> bool {
        use FaultKind::{BlackHole, BlackHoleReplies, BlackHoleRequests};
        matches!(
            self,
            Self::StopWorker | Self::StopServer | BlackHole | BlackHoleRequests | BlackHoleReplies
        )
    }

    /// Whether requests that were sent while it lasted may be carried out after it.
    pub(crate) fn delays_requests(self) -> bool {
        matches!(
            self,
            Self::StopServer | Self::KillServer | Self::BlackHole | Self::BlackHoleRequests
        )
    }

    /// Whether the server's clock jumps, by so much as is said with it.
    pub(crate) fn is_a_step(self) -> bool {
        matches!(self, Self::ClockForward | Self::ClockBack)
    }

    /// Its name in a history.
    pub fn name(self) -> &'static str {
        match self {
            Self::StopWorker => "stop-worker",
            Self::KillWorker => "kill-worker",
            Self::StopServer => "stop-server",
            Self::KillServer => "kill-server",
            Self::ScriptFlush => "script-flush",
            Self::ClientKill => "client-kill",
            Self::Memory => "memory",
            Self::Failover => "failover",
            Self::BlackHole => "black-hole",
            Self::BlackHoleRequests => "black-hole-requests",
            Self::BlackHoleReplies => "black-hole-replies",
            Self::Evict => "evict",
            Self::ClockForward => "clock-forward",
            Self::ClockBack => "clock-back",
        }
    }
}

//! The plan of a campaign, as written before it starts.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The content of `campaign.json`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Campaign {
    /// The version of the format: 2, or 1 without modes.
    pub format: u32,
    /// The name of the run.
    pub run: String,
    /// The seed of the fault schedule.
    pub seed: u64,
    /// The TTL of every lease, in milliseconds.
    pub ttl_ms: u64,
    /// The number of workers at a time.
    pub workers: u64,
    /// The number of locks.
    pub locks: u64,
    /// Which operations the resource requires a fence for.
    pub resource: Resource,
    /// Whether the run has no protection and must therefore show violations.
    pub control: bool,
    /// `leasehold`, or the name of a rung of the ladder.
    pub system: String,
    /// How many nodes vote on each lock; 0 if it is one server.
    #[serde(default)]
    pub nodes: u64,
    /// The least number of faults of each kind.
    #[serde(default)]
    pub planned: BTreeMap<FaultKind, u64>,
    /// The bounds that the run must meet.
    #[serde(default)]
    pub bounds: Bounds,
}

impl Campaign {
    /// Whether the lock must keep its promises: not a rung of the ladder in a control.
    pub(crate) fn trusts_the_lock(&self) -> bool {
        !self.control || self.system == "leasehold"
    }

    pub(crate) fn ttl_ns(&self) -> u64 {
        self.ttl_ms.saturating_mul(1_000_000)
    }
}

/// The bounds of a campaign, in milliseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// The longest time of an acquire after the faults, for itself and again for each acquire ahead of it (I10). Without it,
    /// liveness is not judged.
    pub acquire_after_calm_ms: Option<u64>,
    /// How long after a TTL an acquire without an outcome may still hold the lock (I8).
    pub orphan_ms: u64,
    /// How late a process that was not stopped may write that something happened (I7, I9, I13): 25 by default.
    pub scheduling_ms: u64,
    /// How long after the end of its fault a node of a quorum may be out of reach of some client (I13).
    pub recovery_ms: u64,
    /// The longest wait for a lock that nobody holds, on a quorum (I13). Without it, that is measured only.
    pub idle_ms: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            acquire_after_calm_ms: None,
            orphan_ms: 0,
            scheduling_ms: 25,
            recovery_ms: 0,
            idle_ms: None,
        }
    }
}

impl Bounds {
    pub(crate) fn scheduling_ns(self) -> u64 {
        self.scheduling_ms.saturating_mul(1_000_000)
    }

    pub(crate) fn recovery_ns(self) -> u64 {
        self.recovery_ms.saturating_mul(1_000_000)
    }

    pub(crate) fn orphan_ns(self) -> u64 {
        self.orphan_ms.saturating_mul(1_000_000)
    }
}

/// Which operations the resource requires a fence for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// None.
    #[default]
    Unfenced,
    /// Each write.
    WriteFenced,
    /// Each read and each write.
    Fenced,
}

impl Resource {
    /// Whether a write, or a read, must present a fence.
    pub(crate) fn wants_fence(self, write: bool) -> bool {
        match self {
            Self::Unfenced => false,
            Self::WriteFenced => write,
            Self::Fenced => true,
        }
    }
}

/// The kinds of fault that the nemesis can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// SIGSTOP to a worker, SIGCONT later.
    StopWorker,
    /// SIGKILL to a worker.
    KillWorker,
    /// SIGSTOP to the server, SIGCONT later.
    StopServer,
    /// SIGKILL to the server, and a new one on its data; to a node of a quorum, and a new one without data.
    KillServer,
    /// SIGKILL to a node of a quorum, and a new one on its data.
    RestartServer,
    /// SIGKILL to a node of a quorum, and a new one on an older snapshot of its data.
    Rollback,
    /// `SCRIPT FLUSH`.
    ScriptFlush,
    /// `CLIENT KILL` of the workers' connections.
    ClientKill,
    /// No memory for writes, for a while.
    Memory,
    /// Clients are redirected to a replica that stopped following the server when the fault began: later writes are lost.
    Failover,
    /// A slot moves from a primary of a cluster to another one, with the lock in it.
    MoveSlot,
    /// Some connections carry no bytes for a while, in neither direction. The delayed bytes arrive afterwards.
    BlackHole,
    /// Requests on some connections are delayed for a while; replies are not.
    BlackHoleRequests,
    /// Replies on some connections are delayed for a while; requests are not.
    BlackHoleReplies,
    /// Keys beside a lock are deleted, as by eviction: the queue, the state of its waiters, or the fence counter. Never the lock
    /// itself.
    Evict,
    /// A lock is broken as by an operator: whoever holds it by that grant does so no longer.
    BreakLock,
    /// `FLUSHALL` at a node of a quorum.
    Flush,
    /// A node of a quorum gives up its data for those of another one (`REPLICAOF`), and is a primary again.
    Copy,
    /// Some connections carry no bytes for a while, and end then: the bytes are lost.
    HalfOpen,
    /// Each packet comes late for a while.
    Slow,
    /// The server's wall clock jumps forward: earlier writes expire too early by that much.
    ClockForward,
    /// The server's wall clock jumps back: earlier writes expire too late by that much.
    ClockBack,
}

impl FaultKind {
    /// Whether it happens to a worker; otherwise it happens to the server.
    pub(crate) fn is_of_a_worker(self) -> bool {
        matches!(self, Self::StopWorker | Self::KillWorker)
    }

    /// Whether it has a duration; without one, it has no effect.
    pub(crate) fn lasts(self) -> bool {
        matches!(
            self,
            Self::StopWorker
                | Self::StopServer
                | Self::BlackHole
                | Self::BlackHoleRequests
                | Self::BlackHoleReplies
                | Self::HalfOpen
                | Self::Slow
        )
    }

    /// Whether requests that were sent during it may be executed after it.
    pub(crate) fn delays_requests(self) -> bool {
        matches!(
            self,
            Self::StopServer
                | Self::KillServer
                | Self::RestartServer
                | Self::Rollback
                | Self::BlackHole
                | Self::BlackHoleRequests
                | Self::Slow
        )
    }

    /// Whether the server's clock jumps; the line then says by how much.
    pub(crate) fn is_a_step(self) -> bool {
        matches!(self, Self::ClockForward | Self::ClockBack)
    }
}

/// Its name in a history.
impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

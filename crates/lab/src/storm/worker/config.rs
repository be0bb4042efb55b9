//! The configuration of a worker process.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The lock implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The library.
    Leasehold,
    /// `SET NX PX`, work, `DEL`: the rung P4, which is mostly written with `EX` and seconds.
    SetDel,
}

/// The configuration of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerConfig {
    pub(crate) proc: u64,
    pub(crate) seed: u64,
    pub(crate) system: System,
    /// The URLs of the stores. Each worker uses one of them.
    pub(crate) urls: Vec<String>,
    /// The prefix of the lock names, and the number of locks.
    pub(crate) prefix: String,
    pub(crate) locks: u64,
    pub(crate) ttl_ms: u64,
    /// The number of tasks; each acquires and releases.
    pub(crate) tasks: u64,
    /// The percentage of leases that are outlived on purpose.
    pub(crate) outlived: u64,
    /// The directory of the history.
    pub(crate) directory: PathBuf,
    /// The socket of the resource.
    pub(crate) socket: PathBuf,
    /// A file; when it exists, workers stop acquiring.
    pub(crate) enough: PathBuf,
}

impl WorkerConfig {
    pub(crate) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// The URL of its store.
    pub(super) fn url(&self) -> &str {
        let turn = self.proc.checked_rem(self.urls.len() as u64);
        let turn = turn.and_then(|turn| usize::try_from(turn).ok());
        turn.and_then(|turn| self.urls.get(turn))
            .map_or("", String::as_str)
    }

    /// Whether to stop acquiring.
    pub(super) fn is_enough(&self) -> bool {
        self.enough.exists()
    }
}

//! Who a worker is and what it works with, as it is told when it starts. Must never hold anything but data.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What locks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The library.
    Leasehold,
    /// `SET NX PX`, work, `DEL`: the rung P4, which is mostly written with `EX` and seconds.
    SetDel,
}

/// Who the worker is and what it works with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerConfig {
    pub(crate) proc: u64,
    pub(crate) seed: u64,
    pub(crate) system: System,
    pub(crate) url: String,
    /// What the names of the locks begin with, and how many there are.
    pub(crate) prefix: String,
    pub(crate) locks: u64,
    pub(crate) ttl_ms: u64,
    /// Each of them acquires and releases.
    pub(crate) tasks: u64,
    /// Of a hundred leases, how many are outlived on purpose.
    pub(crate) outlived: u64,
    /// Where the history is written.
    pub(crate) directory: PathBuf,
    /// Of the resource.
    pub(crate) socket: PathBuf,
    /// When it exists, no more locks are wanted.
    pub(crate) enough: PathBuf,
}

impl WorkerConfig {
    pub(crate) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Whether to come to an end.
    pub(super) fn is_enough(&self) -> bool {
        self.enough.exists()
    }
}

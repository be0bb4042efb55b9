//! The settings of a soak test, without defaults; the options have those.

use std::path::PathBuf;
use std::time::Duration;

use super::resource::Fencing;

/// The settings of a soak test.
#[derive(Debug, Clone)]
pub struct StormSettings {
    /// The number of processes.
    pub workers: u64,
    /// The number of locks.
    pub locks: u64,
    /// The TTL of each lease.
    pub ttl: Duration,
    /// The total time: an eighth for each control (a twelfth on a quorum), the rest for the main campaign, of which at most a seventh
    /// is calm.
    pub time: Duration,
    /// How late a process may write an event. A machine with more work than processors keeps processes from running for a while.
    pub tolerance: Duration,
    /// The seed of faults and work.
    pub seed: u64,
    /// Which operations the resource of the main campaign requires a fence for.
    pub resource: Fencing,
    /// Five servers that vote, instead of one.
    pub quorum: bool,
    /// A server to use instead of a private one. Only workers are then stopped and killed.
    pub url: Option<String>,
    /// The directory for histories. By default they are kept only after a violation.
    pub directory: Option<PathBuf>,
}

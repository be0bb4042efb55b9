//! What a storm is to be. Must never hold a default: those are where it is asked for.

use std::path::PathBuf;
use std::time::Duration;

use super::resource::Fencing;

/// What a storm is to be.
#[derive(Debug, Clone)]
pub struct StormSettings {
    /// How many processes want the locks, and how many locks there are.
    pub workers: u64,
    /// How many locks there are.
    pub locks: u64,
    /// Of each lease.
    pub ttl: Duration,
    /// For all of it: an eighth for each control, the rest for the storm itself, of which a seventh is calm.
    pub time: Duration,
    /// How late a process may come to write what happened to it. A machine that has more to do than it has processors for keeps
    /// processes from running for a while.
    pub tolerance: Duration,
    /// What faults and work are drawn from.
    pub seed: u64,
    /// What the resource of the storm itself asks for.
    pub resource: Fencing,
    /// A server to use instead of one of its own. Only workers are then stopped and killed.
    pub url: Option<String>,
    /// Where histories are kept. By default they are kept only if something is wrong.
    pub directory: Option<PathBuf>,
}

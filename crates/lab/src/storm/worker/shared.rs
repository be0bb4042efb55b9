//! The immutable state that all tasks of a worker share.

use super::config::WorkerConfig;
use super::log::HistoryLog;

/// The state that all tasks of a worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) config: WorkerConfig,
    pub(super) log: HistoryLog,
}

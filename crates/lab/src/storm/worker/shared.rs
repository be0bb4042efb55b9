//! What all tasks of a worker share. Must never change.

use super::config::WorkerConfig;
use super::log::HistoryLog;

/// What all tasks of a worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) config: WorkerConfig,
    pub(super) log: HistoryLog,
}

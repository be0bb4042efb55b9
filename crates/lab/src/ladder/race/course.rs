//! The shared state of one round of a race.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::Duration;

use super::referee::RaceLog;
use super::settings::RaceSettings;
use crate::host_time;
use crate::ladder::place::RealServers;
use crate::ladder::rungs::Rung;
use crate::ladder::wire::Wire;

/// The state that all threads of a race share.
pub(super) struct Course<'a> {
    pub(super) rung: &'static Rung,
    pub(super) settings: &'a RaceSettings,
    pub(super) servers: &'a RwLock<RealServers>,
    pub(super) wire: &'a Wire,
    /// When the round began, on the clock of this host.
    pub(super) from: Duration,
    pub(super) acquired: AtomicU64,
    pub(super) commands: AtomicU64,
    /// Counts so many acquisitions, then the round ends.
    pub(super) enough: u64,
    pub(super) ended: AtomicBool,
}

impl Course<'_> {
    /// Whether the round has ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.acquired.load(Ordering::Relaxed) >= self.enough
    }

    /// Records a failure, which ends the round at once.
    pub(super) fn ends_if_failed(&self, log: Result<RaceLog, String>) -> Result<RaceLog, String> {
        if log.is_err() {
            self.ended.store(true, Ordering::Relaxed);
        }
        log
    }
}

/// The time since the beginning, on the clock of this host.
pub(super) fn since(then: Duration) -> Duration {
    host_time::up().saturating_sub(then)
}

/// The servers, shared with the other threads.
pub(super) fn read(
    servers: &RwLock<RealServers>,
) -> Result<RwLockReadGuard<'_, RealServers>, String> {
    servers
        .read()
        .map_err(|_| "a thread of the race panicked".to_owned())
}

//! The work under a lock, independent of the lock's implementation.

use std::time::Duration;

use tokio::time::sleep;

use super::log::{HistoryLog, Known, LeaseName};
use super::visit::Visit;
use crate::rng::Rng;

/// How long a holder takes between reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldPlan {
    Short,
    /// More than half of the TTL.
    Long,
    /// Longer than the TTL.
    Outlive,
}

impl HoldPlan {
    pub(super) fn draw(rng: &mut Rng, outlived_percent: u64) -> Self {
        match rng.below(100) {
            drawn if drawn < outlived_percent => Self::Outlive,
            drawn if drawn < outlived_percent + 3 => Self::Long,
            _ => Self::Short,
        }
    }

    pub(super) fn drawn(self, rng: &mut Rng, ttl: Duration) -> Duration {
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(match self {
            Self::Short => rng.below(3_000),
            Self::Long => ttl_us / 2 + rng.below(ttl_us / 3),
            Self::Outlive => ttl_us * 6 / 5 + rng.below(ttl_us),
        })
    }
}

/// Reads the resource and records the outcome. Returns the version, unless it was refused.
pub(super) async fn read(
    log: &HistoryLog,
    name: &LeaseName,
    visit: &mut Visit,
    known: Known,
) -> Result<Option<u64>, String> {
    let op = log.invoke("read", name, known)?;
    let version = visit.read(&name.lock, known.fence).await?;
    log.complete(op, outcome(version), Known::default())?;
    Ok(version)
}

/// Writes to the resource, based on `version`, and records the outcome.
pub(super) async fn write(
    log: &HistoryLog,
    name: &LeaseName,
    visit: &mut Visit,
    known: Known,
    version: u64,
) -> Result<(), String> {
    let op = log.invoke("write", name, known)?;
    let accepted = visit.write(&name.lock, known.fence, version).await?;
    log.complete(op, outcome(accepted), Known::default())
}

const fn outcome(accepted: Option<u64>) -> &'static str {
    match accepted {
        Some(_) => "ok",
        None => "refused",
    }
}

/// Waits, in place of work.
pub(super) async fn stay(stay: HoldPlan, rng: &mut Rng, ttl: Duration) {
    sleep(stay.drawn(rng, ttl)).await;
}

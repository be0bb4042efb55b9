//! The telemetry of the library: spans and events, and with the feature `metrics` numbers as well. Each test has its own listeners, and no
//! other test reaches them.

#[cfg(feature = "metrics")]
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod events;
#[cfg(feature = "metrics")]
mod failing;
mod listener;
#[cfg(feature = "metrics")]
mod names;
#[cfg(feature = "metrics")]
mod numbers;
mod page;
#[cfg(feature = "metrics")]
mod quorum;
#[cfg(feature = "metrics")]
mod recorder;
mod scene;
mod unruly;

use std::time::Duration;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

//! The time of this host, including suspend: one clock for all its processes.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// On systems other than Linux, `CLOCK_MONOTONIC` includes suspend.
#[cfg(any(target_os = "linux", target_os = "android"))]
const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_MONOTONIC;

/// How long the host has been up.
pub fn up() -> Duration {
    // Fails only for a clock that the system does not have.
    clock_gettime(COUNTS_SUSPEND).map_or(Duration::ZERO, Duration::from)
}

/// The uptime in nanoseconds, as in histories.
pub fn up_ns() -> u64 {
    u64::try_from(up().as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock of this host, in nanoseconds since 1970: it may jump.
pub fn wall_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from);
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

//! Time and resources of this process. All processes of a host share CLOCK_MONOTONIC, so their records
//! can be merged.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC");
    nanos(Duration::from(now))
}

/// The seconds since then.
pub fn seconds_since(then: u64) -> f64 {
    (now_ns() - then) as f64 / 1e9
}

pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than 584 years")
}

pub async fn sleep_until_async(until: u64) {
    tokio::time::sleep(Duration::from_nanos(until.saturating_sub(now_ns()))).await;
}

/// CPU time of all threads of this process so far.
pub fn cpu_used() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage");
    [usage.user_time(), usage.system_time()]
        .into_iter()
        .map(|time| {
            Duration::from_micros(
                u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0),
            )
        })
        .sum()
}

/// Resident memory of this process.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.expect("VmRSS").parse::<u64>().expect("a number") * 1024
}

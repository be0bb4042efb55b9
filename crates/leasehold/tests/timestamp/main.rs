//! The timestamp protocol on a real server, beside plain clients of the recipe with their own clocks. The numbers in names are those of the
//! invariants in `leasehold::timestamp` and `leasehold_core::timestamp`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(
    clippy::disallowed_methods,
    reason = "foreign clients have threads and clocks of their own"
)]

mod between;
mod ending;
mod faults;
mod keeping;
mod recipe;
mod refusing;
mod replaced;
mod sharing;
mod verdicts;

use std::time::Duration;

use leasehold::Client;
use leasehold::timestamp::{TimestampHold, TimestampLock, Unit};
use testkit::RedisServer;

/// A time limit that only a fault reaches.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The TTL of most holds.
pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) const UNITS: [Unit; 2] = [Unit::Seconds, Unit::Millis];

/// A server with a clock that stands still until the test moves it.
pub(crate) fn frozen() -> RedisServer {
    let server = RedisServer::builder().virtual_clock().start();
    // Starts at the beginning of a second, so that no client's milliseconds reach into the next one.
    let now = server.clock().now();
    server.clock().set(now - now % 1_000_000);
    server
}

pub(crate) async fn connect(url: &str) -> Client {
    Client::connect(url).await.unwrap()
}

/// Takes a lock that must be free.
pub(crate) async fn take(lock: &TimestampLock) -> TimestampHold {
    lock.try_acquire().await.unwrap().expect("it is free")
}

/// The value of the key.
pub(crate) fn value(server: &RedisServer, key: &str) -> Option<String> {
    let reply = server.cli(&["GET", key]);
    (!reply.is_nil()).then(|| reply.text())
}

/// The server's clock in units.
pub(crate) fn now(server: &RedisServer, unit: Unit) -> u64 {
    unit.at(server.clock().now())
}

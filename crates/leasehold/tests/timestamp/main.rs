//! The timestamp protocol on a real server, beside plain clients of the recipe with their own clocks. The numbers in names are those of the
//! invariants in `leasehold::timestamp` and `leasehold_core::timestamp`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(
    clippy::disallowed_methods,
    reason = "foreign clients have threads and clocks of their own"
)]

mod between;
#[path = "../common/mod.rs"]
mod common;
mod ending;
mod faults;
mod keeping;
mod recipe;
mod refusing;
mod sharing;
mod verdicts;

use std::slice;
use std::time::Duration;

use leasehold::Client;
use leasehold::timestamp::{TimestampHold, TimestampLock, Unit};
use testkit::{FaultProxy, RedisServer, TestTime, eventually};

pub(crate) use common::{LONG, TTL};

pub(crate) const UNITS: [Unit; 2] = [Unit::Seconds, Unit::Millis];

/// A server with a clock that stands still until the test moves it.
pub(crate) fn frozen() -> RedisServer {
    let server = RedisServer::builder().virtual_clock().start();
    // Starts at the beginning of a second, so that no client's milliseconds reach into the next one.
    let now = server.clock().now();
    server.clock().set(now - now % 1_000_000);
    server
}

/// A [`frozen`] server and a client in real time.
pub(crate) async fn scene() -> (RedisServer, Client) {
    let server = frozen();
    let client = connect(&server.url()).await;
    (server, client)
}

/// A [`frozen`] server and a client with one time.
pub(crate) async fn timed_scene() -> (RedisServer, TestTime, Client) {
    let server = frozen();
    let (time, client) = connect_in_test_time(&server, &server.url()).await;
    (server, time, client)
}

/// A [`frozen`] server, a proxy before it, and a client behind the proxy with the server's time.
pub(crate) async fn proxied_scene() -> (RedisServer, FaultProxy, TestTime, Client) {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let (time, client) = connect_in_test_time(&server, &proxy.url()).await;
    (server, proxy, time, client)
}

/// A client in real time. No request fails by its limit.
pub(crate) async fn connect(url: &str) -> Client {
    let builder = Client::builder().request_timeout(LONG);
    builder.connect(url).await.unwrap()
}

/// A client whose clock goes with that of a [`frozen`] server: `TestTime::pass` moves both.
pub(crate) async fn connect_in_test_time(server: &RedisServer, url: &str) -> (TestTime, Client) {
    let (time, clock) = common::test_time(slice::from_ref(server));
    let client = common::timed(&clock).connect(url).await.unwrap();
    (time, client)
}

/// A step of [`pass_until`] in which time passes no faster than in reality. So no stall of a client costs it a lease of many seconds.
pub(crate) const STEP: Duration = Duration::from_millis(5);

/// Lets time pass step by step until `condition` holds: a client's pauses follow its clock.
pub(crate) fn pass_until(
    time: &TestTime,
    step: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    eventually(LONG, what, || {
        let holds = condition();
        if !holds {
            time.pass(step);
        }
        holds
    });
}

/// How long a client relies on a hold with this TTL, from when it asked.
pub(crate) fn certain(ttl: Duration) -> Duration {
    (ttl * 99 / 100).saturating_sub(Duration::from_millis(2))
}

/// The number of scripts that the server has run by their hash.
pub(crate) fn scripts_run(server: &RedisServer) -> i64 {
    let stats = server.cli(&["INFO", "commandstats"]).text();
    let line = stats.lines().find(|line| line.contains("_evalsha:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.map_or(0, |calls| calls.parse().unwrap())
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

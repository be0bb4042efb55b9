//! The telemetry of a cache: on virtual time with a store in memory, and on a server that stops. Each test has its own listeners, and no other
//! test reaches them.
#![allow(clippy::disallowed_methods, reason = "a test starts callers")]

#[path = "../../../leasehold/tests/common/mod.rs"]
mod common;
mod events;
#[path = "../../../leasehold/tests/telemetry/listener.rs"]
mod listener;
mod numbers;
#[path = "../../../leasehold/tests/telemetry/recorder.rs"]
mod recorder;

use std::future::ready;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::{Client, ClientBuilder, Clock, Memory};
use leasehold_cache::{Cache, Policy};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A store that several clients share.
struct Fleet {
    memory: Memory,
    clock: Clock,
}

impl Fleet {
    fn new() -> Self {
        let clock = Clock::virtual_time();
        Self {
            memory: Memory::new(clock.clone()),
            clock,
        }
    }

    fn client(&self, builder: ClientBuilder) -> Client {
        let builder = builder.clock(self.clock.clone());
        builder.embedded(&self.memory).expect("it works")
    }
}

/// Values are fresh for 60 s and stale for 600 more, without jitter and early refreshes.
fn plain() -> Policy {
    Policy::default().jitter(0.0).eagerness(0.0)
}

fn plain_cache(client: &Client) -> Cache {
    Cache::new(client).policy(plain())
}

type Load = BoxFuture<'static, Result<u32, String>>;

/// A loader that takes this many seconds.
fn slow(seconds: u32) -> impl FnOnce() -> Load + Send + 'static {
    move || {
        Box::pin(async move {
            sleep(seconds * SECOND).await;
            Ok(4_711_815)
        })
    }
}

/// A loader that fails.
fn fails() -> Load {
    Box::pin(ready(Err("the source is down".to_owned())))
}

fn panics() -> Load {
    Box::pin(async { panic!("the source is odd") })
}

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
use testkit::{FaultProxy, RedisServer};
use tokio::time::sleep;

use crate::common::{LONG, eventually};

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

/// A server, and the network to it.
struct Link {
    proxy: FaultProxy,
    _server: RedisServer,
}

impl Link {
    fn start() -> Self {
        let server = RedisServer::start();
        Self {
            proxy: FaultProxy::start(server.port()),
            _server: server,
        }
    }

    async fn client(&self) -> Client {
        let builder = Client::builder().request_timeout(LONG);
        builder.connect(&self.proxy.url()).await.expect("it is up")
    }

    fn loses_replies(&self) {
        self.proxy.swallow_replies(true);
    }

    /// The connection breaks after a reply was lost: the client cannot know whether its request was carried out. The server is away
    /// from then on.
    async fn breaks_after_a_lost_reply(&self) {
        let lost = async || self.proxy.swallowed() > 0;
        eventually("a reply is lost", lost).await;
        self.proxy.refuse(true);
        self.proxy.cut();
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

//! Stores that the clients of a test share, and helpers for the tests.

#![allow(dead_code, reason = "each test crate uses its own part of it")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Clock, Error, Lease, Memory, Mutex, Snapshot};
use tempfile::TempDir;
use testkit::RedisServer;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A time limit that only a fault reaches.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A TTL longer than any test. A test that waits until it passes has failed.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A store, with its memory, directory or server.
pub(crate) enum Place {
    Memory(Memory),
    Local(TempDir),
    Redis(Box<RedisServer>),
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory(Memory::new(Clock::system()))
    }

    pub(crate) fn local() -> Self {
        Self::Local(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start()))
    }

    /// A client with default settings.
    pub(crate) async fn client(&self) -> Client {
        self.connect(Client::builder()).await.expect("it works")
    }

    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Result<Client, Error> {
        match self {
            Self::Memory(memory) => builder.embedded(memory),
            Self::Local(_) | Self::Redis(_) => builder.connect(&self.url()).await,
        }
    }

    /// True if the store notifies a client when another client waits.
    pub(crate) fn tells_wanted(&self) -> bool {
        !matches!(self, Self::Local(_))
    }

    /// The URL of the store. `memory:` does not lead to the memory of this store.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(_) => "memory:".into(),
            Self::Local(dir) => format!("local:{}/locks.db", dir.path().display()),
            Self::Redis(server) => server.url(),
        }
    }
}

/// Makes tests of behaviours, `async fn(Place)`, for every store.
macro_rules! on_every_store {
    ($($behaviour:ident)*) => {
        on_every_store! { memory: $($behaviour)* }
        on_every_store! { local: $($behaviour)* }
        on_every_store! { redis: $($behaviour)* }
    };
    ($store:ident: $($behaviour:ident)*) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    super::$behaviour($crate::common::Place::$store()).await;
                }
            )*
        }
    };
}
pub(crate) use on_every_store;

/// Takes a lock that must be free.
pub(crate) async fn take(client: &Client, name: &str) -> Lease {
    let lease = client.mutex(name).ttl(TTL).try_acquire().await;
    lease.expect("the store answers").expect("nobody holds it")
}

/// The state of the lock, as an operator sees it.
pub(crate) async fn look(client: &Client, name: &str) -> Snapshot {
    client.inspect(name).await.expect("the store answers")
}

/// Starts to wait for `mutex`, and returns when the waiter is in the queue. `waiting` gets `number` and the result of the acquire.
pub(crate) async fn stand_in_line(
    waiting: &mut JoinSet<(usize, Result<Lease, Error>)>,
    number: usize,
    mutex: Mutex,
) {
    let stands = Arc::new(Notify::new());
    let told = stands.clone();
    let mutex = mutex.on_wait(move |_| told.notify_one());
    waiting.spawn(async move { (number, mutex.acquire().await) });
    timeout(LONG, stands.notified()).await.expect("it queues");
}

/// Polls until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, looking).await.expect(what);
}

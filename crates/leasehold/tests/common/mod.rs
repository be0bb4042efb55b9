//! Stores that the clients of a test share, and helpers for the tests.

#![allow(dead_code, reason = "each test crate uses its own part of it")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Clock, Error, Lease, Memory, Mutex, Snapshot};
use tempfile::TempDir;
use testkit::{RedisServer, TestTime};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A time limit that only a fault reaches.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A TTL longer than any test. A test that waits until it passes has failed.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One time for these servers, which have virtual clocks, and for clients with the clock that is returned.
pub(crate) fn test_time(servers: &[RedisServer]) -> (TestTime, Clock) {
    let clock = Clock::manual();
    let moved = clock.clone();
    (TestTime::new(servers, move |by| moved.advance(by)), clock)
}

/// The settings of a client with this clock. No request fails by its limit in real time.
pub(crate) fn timed(clock: &Clock) -> ClientBuilder {
    Client::builder().clock(clock.clone()).request_timeout(LONG)
}

/// A store, with its memory, directory or server.
pub(crate) enum Place {
    Memory(Memory),
    Local(TempDir),
    Redis(Box<RedisServer>),
    /// The servers that are up, and the URL of all.
    Quorum(Vec<RedisServer>, String),
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

    /// Three servers.
    pub(crate) fn quorum() -> Self {
        let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
        for server in &servers {
            mark(server, 24 * 60 * 60 * 1_000);
        }
        let hosts: Vec<String> = servers.iter().map(host).collect();
        let url = format!("redis+quorum://{}/?max_ttl=24h", hosts.join(","));
        Self::Quorum(servers, url)
    }

    /// Three servers, of which one is down all the time.
    pub(crate) fn majority() -> Self {
        match Self::quorum() {
            Self::Quorum(mut servers, url) => {
                // Each is the lead of a third of the names.
                servers.remove(1).kill();
                Self::Quorum(servers, url)
            }
            other => other,
        }
    }

    /// A client with default settings.
    pub(crate) async fn client(&self) -> Client {
        self.connect(Client::builder()).await.expect("it works")
    }

    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Result<Client, Error> {
        match self {
            Self::Memory(memory) => builder.embedded(memory),
            _ => builder.connect(&self.url()).await,
        }
    }

    /// The servers that are up.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Memory(_) | Self::Local(_) => &[],
            Self::Redis(server) => std::slice::from_ref(server),
            Self::Quorum(servers, _) => servers,
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
            Self::Quorum(_, url) => url.clone(),
        }
    }
}

/// Makes tests of behaviours, `async fn(Place)`, for every store.
macro_rules! on_every_store {
    ($($behaviour:ident)*) => {
        $crate::common::on_every_store_of_entries! { $($behaviour)* }
        on_every_store! { quorum: $($behaviour)* }
        on_every_store! { majority: $($behaviour)* }
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

/// Makes tests of behaviours for every store that also keeps cache entries.
macro_rules! on_every_store_of_entries {
    ($($behaviour:ident)*) => {
        $crate::common::on_every_store! { memory: $($behaviour)* }
        $crate::common::on_every_store! { local: $($behaviour)* }
        $crate::common::on_every_store! { redis: $($behaviour)* }
    };
}
pub(crate) use on_every_store_of_entries;

/// Marks a server as one of the three nodes of a new quorum, as of its present start.
pub(crate) fn mark(server: &RedisServer, longest_ttl_ms: u32) {
    let info = server.cli(&["INFO", "server"]).text();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let id = &run_id.expect("a server has one")[..16];
    let mark = format!("3 {longest_ttl_ms} 0 {id}");
    let set = server.cli(&["SET", "leasehold:quorum", &mark]);
    assert_eq!(set.text(), "OK");
}

pub(crate) fn host(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// Takes a lock that must be free, at all nodes that answer. A majority grants it before the last node has its vote: a client that
/// asks meanwhile may get that one, and then waits in no queue.
pub(crate) async fn take(client: &Client, name: &str) -> Lease {
    let lease = client.mutex(name).ttl(TTL).try_acquire().await;
    let lease = lease.expect("the store answers").expect("nobody holds it");
    all_nodes_show(client, name, "its votes", |seen| {
        let holder = seen.holder.as_ref().and_then(|holder| holder.fence);
        holder == Some(lease.fence())
    })
    .await;
    lease
}

/// Polls until each node that answers shows this state.
pub(crate) async fn all_nodes_show(
    client: &Client,
    name: &str,
    what: &str,
    condition: impl Fn(&Snapshot) -> bool,
) {
    eventually(what, async || {
        let inspected = client.inspect_nodes(name).await.expect("it is open");
        let mut seen = inspected
            .nodes
            .iter()
            .filter_map(|view| view.seen.as_ref().ok());
        seen.all(&condition)
    })
    .await;
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

//! Servers that are marked as the nodes of a new quorum.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Clock, Error, Lease, Mutex, StoreError};
use testkit::{RedisServer, RedisServerBuilder, TestTime};
use tokio::time::{sleep, timeout};

pub(crate) use crate::common::host;
use crate::common::{self, LONG, eventually};

/// The lock of most tests.
pub(crate) const NAME: &str = "orders";

/// The longest TTL of the quorum, its default. A third of it, the limit of a request, is as long as the longest wait of a test: a test
/// that waits for a silent server fails.
pub(crate) const TTL: Duration = Duration::from_secs(60);

const LONGEST_TTL_MS: u32 = 60_000;

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The servers of a quorum.
pub(crate) struct Nodes(pub(crate) Vec<RedisServer>);

impl Nodes {
    /// Three servers.
    pub(crate) fn start() -> Self {
        Self::start_with(|builder| builder)
    }

    /// Three servers with these options.
    pub(crate) fn start_with(options: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        Self::many(3, options)
    }

    /// So many servers, with these options.
    fn many(count: usize, options: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        let servers = (0..count).map(|_| options(RedisServer::builder()).start());
        Self::of(servers.collect())
    }

    /// A new quorum of these servers.
    pub(crate) fn of(servers: Vec<RedisServer>) -> Self {
        common::mark(&servers, LONGEST_TTL_MS);
        Self(servers)
    }

    /// The URL of the quorum, with these options.
    pub(crate) fn url(&self, options: &str) -> String {
        let hosts: Vec<String> = self.0.iter().map(host).collect();
        format!("redis+quorum://{}/{options}", hosts.join(","))
    }

    /// A client. It may not have reached each of the servers yet.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url("")).await
    }

    /// The number of servers that are up and have a vote for the lock.
    pub(crate) fn votes(&self) -> usize {
        let voted = |server: &&RedisServer| exists(server, NAME);
        self.0.iter().filter(voted).count()
    }

    /// Waits until these servers have a vote for the lock.
    pub(crate) async fn vote(&self, nodes: &[usize]) {
        eventually("the votes", async || {
            nodes.iter().all(|node| exists(&self.0[*node], NAME))
        })
        .await;
    }

    /// Waits until no server has a vote for the lock, or waiters. That is long before a vote ends by itself.
    pub(crate) async fn are_clean(&self) {
        let left = timeout(LONG, self.no_votes_are_left()).await;
        assert!(left.is_ok(), "still there: {:?}", self.left());
    }

    async fn no_votes_are_left(&self) {
        // Late votes may come between two looks.
        let mut looks = 0;
        while looks < 20 {
            let is_clean = self.left().is_empty();
            looks = if is_clean { looks + 1 } else { 0 };
            sleep(millis(5)).await;
        }
    }

    /// The state of the lock at each server that has a vote or waiters.
    fn left(&self) -> Vec<String> {
        let queue = format!("{{{NAME}}}:lh-queue");
        let left = self.0.iter().map(|server| {
            let holder = server.cli(&["GET", NAME]);
            let left = server.cli(&["PTTL", NAME]);
            let waiters = server.cli(&["ZRANGE", &queue, "0", "-1"]);
            let is_left = !holder.is_nil() || !waiters.array().is_empty();
            is_left.then(|| format!("{holder:?} for {left:?}, {waiters:?}"))
        });
        left.flatten().collect()
    }
}

/// Servers and clients with one clock, which only the test moves.
pub(crate) struct Timed {
    nodes: Nodes,
    pub(crate) time: TestTime,
    pub(crate) clock: Clock,
}

impl Deref for Timed {
    type Target = Nodes;

    fn deref(&self) -> &Nodes {
        &self.nodes
    }
}

impl Timed {
    pub(crate) fn start() -> Self {
        Self::start_with(|builder| builder)
    }

    /// Three servers with these options.
    pub(crate) fn start_with(options: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        Self::many(3, options)
    }

    /// So many servers, with these options.
    pub(crate) fn many(
        count: usize,
        options: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        Self::of(Nodes::many(count, |builder| {
            options(builder).virtual_clock()
        }))
    }

    pub(crate) fn of(nodes: Nodes) -> Self {
        let (time, clock) = common::test_time(&nodes.0);
        Self { nodes, time, clock }
    }

    /// A client of these nodes. It may not have reached each of the servers yet.
    pub(crate) async fn client(&self) -> Client {
        self.connect(&self.url("")).await
    }

    pub(crate) async fn connect(&self, url: &str) -> Client {
        connected(common::timed(&self.clock), url).await
    }

    /// The output of `future`, for which clients may pause, and for which no request may have to reach its limit.
    pub(crate) async fn passing<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        common::passing(&self.time, what, future).await
    }

    pub(crate) async fn renewed(&self, lease: &Lease) {
        common::renewed(&self.time, lease).await;
    }

    pub(crate) async fn outlives_its_ttl(&self, lease: &Lease) {
        common::outlives_its_ttl(&self.time, lease).await;
    }

    /// Waits for the release, which no silent server may delay.
    pub(crate) async fn release(&self, lease: Lease) {
        let released = self.passing("the release", lease.release()).await;
        released.expect("two servers confirm it");
    }

    /// Waits until no server has a vote for the lock, or waiters. A release that failed is repeated after a second.
    pub(crate) async fn are_clean(&self) {
        let clean = self.nodes.no_votes_are_left();
        self.passing("nothing is left", clean).await;
    }
}

pub(crate) fn exists(server: &RedisServer, key: &str) -> bool {
    server.cli(&["EXISTS", key]).int() == 1
}

pub(crate) async fn connect(url: &str) -> Client {
    connected(Client::builder().request_timeout(LONG), url).await
}

pub(crate) async fn connected(builder: ClientBuilder, url: &str) -> Client {
    let connected = timeout(LONG, builder.connect(url)).await;
    connected.expect("in time").expect("a majority answers")
}

/// The lock, as most tests take it.
pub(crate) fn lock(client: &Client) -> Mutex {
    client.mutex(NAME).ttl(TTL)
}

/// Takes the lock, which must be free.
pub(crate) async fn take(client: &Client) -> Lease {
    let taken = lock(client).try_acquire().await;
    taken.expect("a majority answers").expect("it is free")
}

/// The error of a request for the lock.
pub(crate) async fn refusal(client: &Client) -> StoreError {
    match lock(client).try_acquire().await {
        Err(Error::Store(error)) => error,
        other => panic!("expected a store error, got {other:?}"),
    }
}

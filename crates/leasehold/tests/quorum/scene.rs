//! Three servers that are marked as the nodes of a new quorum.

use std::time::Duration;

use leasehold::{Client, Clock, Error, Lease, Moment, StoreError};
use testkit::{RedisServer, RedisServerBuilder};
use tokio::time::{sleep, timeout};

pub(crate) use crate::common::host;
use crate::common::{self, LONG, eventually};

/// The lock of most tests.
pub(crate) const NAME: &str = "orders";

/// The time until nothing of a lock may be left: for a server that was stopped, a second until a release is repeated.
const SOON: Duration = Duration::from_secs(5);

/// The longest TTL of the quorum, its default.
const LONGEST_TTL_MS: u32 = 60_000;

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}

/// Three servers.
pub(crate) struct Nodes(pub(crate) Vec<RedisServer>);

impl Nodes {
    pub(crate) fn start() -> Self {
        Self::start_with(|builder| builder)
    }

    /// Servers with these options.
    pub(crate) fn start_with(options: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        let servers = (0..3).map(|_| options(RedisServer::builder()).start());
        let nodes = Self(servers.collect());
        for server in &nodes.0 {
            mark(server);
        }
        nodes
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

    /// Waits until no server has a vote for the lock, or waiters.
    pub(crate) async fn are_clean(&self) {
        let queue = format!("{{{NAME}}}:lh-queue");
        let left = || {
            let left = self.0.iter().map(|server| {
                let holder = server.cli(&["GET", NAME]);
                let left = server.cli(&["PTTL", NAME]);
                let waiters = server.cli(&["ZRANGE", &queue, "0", "-1"]);
                (!holder.is_nil() || !waiters.array().is_empty()).then_some((holder, left, waiters))
            });
            left.flatten().collect::<Vec<_>>()
        };
        let clean = timeout(SOON, async {
            // Late votes may come between two looks.
            let mut looks = 0;
            while looks < 20 {
                looks = if left().is_empty() { looks + 1 } else { 0 };
                sleep(millis(5)).await;
            }
        });
        assert!(clean.await.is_ok(), "still there: {:?}", left());
    }
}

/// Marks a server as a node of a new quorum, as of its present start.
pub(crate) fn mark(server: &RedisServer) {
    common::mark(server, LONGEST_TTL_MS);
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.cli(&["EXISTS", key]).int() == 1
}

pub(crate) async fn connect(url: &str) -> Client {
    let connected = timeout(LONG, Client::connect(url)).await;
    connected.expect("in time").expect("a majority answers")
}

/// Takes the lock, which must be free, with this TTL.
pub(crate) async fn take(client: &Client, ttl: Duration) -> Lease {
    let taken = client.mutex(NAME).ttl(ttl).try_acquire().await;
    taken.expect("a majority answers").expect("it is free")
}

/// The error of a request for the lock.
pub(crate) async fn refusal(client: &Client) -> StoreError {
    let outcome = client.mutex(NAME).try_acquire().await;
    match outcome {
        Err(Error::Store(error)) => error,
        other => panic!("expected a store error, got {other:?}"),
    }
}

/// Waits until the lease was renewed for longer than it lasted at first.
pub(crate) async fn outlives_its_ttl(lease: &Lease) {
    let until = lease.valid_until();
    eventually("renewals", async || {
        now() > until && lease.valid_until() > now()
    })
    .await;
    assert!(!lease.is_lost());
}

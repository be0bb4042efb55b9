//! Grants and renewals that count once replicas have them, on servers with real replicas. A replica is paused to confirm nothing.

#[path = "../common/mod.rs"]
mod common;
mod refusals;

use std::slice;
use std::time::Duration;

use leasehold::{Client, Lease, LossCause, StoreErrorKind};
use testkit::{RedisCluster, RedisServer};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::common::{
    LONG, TTL, as_seconds_pass, eventually, look, passing, renewed, store_error, take, test_time,
    timed,
};

/// How long a test watches that something does not happen.
const A_WHILE: Duration = Duration::from_millis(200);

/// Replicas get all the time that the limit of a request leaves.
const PATIENT: &str = "replicas=1&replicas_timeout=1m";

/// A primary, and a replica that follows it.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
}

impl Pair {
    fn start() -> Self {
        let primary = RedisServer::builder().option("repl-diskless-sync-delay", "0");
        Self::of(primary.start())
    }

    fn of(primary: RedisServer) -> Self {
        let replica = RedisServer::builder().replica_of(primary.port()).start();
        replica.follows(LONG);
        // A primary counts a replica only after its first word.
        assert_eq!(primary.cli(&["WAIT", "1", "0"]).int(), 1);
        Self { primary, replica }
    }

    /// A client with these options in its URL.
    async fn client(&self, options: &str) -> Client {
        connect(&format!("{}?{options}", self.primary.url())).await
    }

    /// Whether the replica has the lock of this lease.
    fn has(&self, lease: &Lease) -> bool {
        has(&self.replica, lease)
    }
}

async fn connect(url: &str) -> Client {
    let client = Client::builder().request_timeout(LONG).connect(url);
    client.await.expect("a connection")
}

fn has(replica: &RedisServer, lease: &Lease) -> bool {
    let mut connection = replica.connection();
    // A replica in a cluster answers only then. Another one refuses this, and answers always.
    connection.command(&["READONLY"]);
    let value = connection.command(&["GET", lease.name()]);
    !value.is_nil() && value.text().starts_with(lease.owner().token())
}

/// Asks for a lock in the background.
fn acquire(client: &Client, name: &str) -> JoinHandle<Result<Lease, leasehold::Error>> {
    let lock = client.mutex(name).ttl(TTL * 4);
    beside(async move { lock.acquire().await })
}

#[allow(clippy::disallowed_methods, reason = "a task of the test itself")]
fn beside<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// The output of `future`, which no fault holds up.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(output) = timeout(LONG, future).await else {
        panic!("not within {LONG:?}: {what}");
    };
    output
}

async fn lease_of(asked: JoinHandle<Result<Lease, leasehold::Error>>) -> Lease {
    let lease = soon("a lease", asked).await.expect("no panic");
    lease.expect("a lease")
}

#[tokio::test]
async fn grant_counts_once_a_replica_has_it() {
    let pair = Pair::start();
    let client = pair.client(PATIENT).await;
    let before = client.mutex("before").ttl(TTL * 4).acquire().await;
    let before = before.expect("free");
    pair.replica.pause();
    let asked = acquire(&client, "x");
    eventually("it is granted", async || {
        pair.primary.cli(&["EXISTS", "x"]).int() == 1
    })
    .await;

    // Nothing else waits for the replica.
    let seen = soon("a look", client.inspect("x")).await.expect("a look");
    assert!(seen.holder.is_some());
    let released = soon("a release", before.release()).await;
    released.expect("held");
    sleep(A_WHILE).await;
    assert!(!asked.is_finished());

    pair.replica.resume();
    let lease = lease_of(asked).await;
    assert!(pair.has(&lease));
    lease.release().await.expect("held");
}

#[tokio::test]
async fn unconfirmed_grant_is_undone_and_says_how_many_confirmed() {
    let pair = Pair::start();
    for (count, confirmed) in [(1, "0 of 1"), (2, "1 of 2")] {
        let options = format!("replicas={count}&replicas_timeout=50ms");
        let client = pair.client(&options).await;
        if count == 1 {
            pair.replica.pause();
        }
        let refused = soon("an error", client.mutex("x").ttl(TTL).acquire()).await;
        let error = store_error(refused);
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert!(error.may_have_taken_effect, "{error:?}");
        let said =
            format!("{confirmed} replicas confirmed it within 50.0ms; the primary has executed it");
        assert!(error.detail.contains(&said), "{error}");
        eventually("nothing is left", async || {
            pair.primary.cli(&["EXISTS", "x"]).int() == 0
        })
        .await;

        if count == 1 {
            pair.replica.resume();
            let lease = client.mutex("x").ttl(TTL).acquire().await;
            let lease = lease.expect("confirmed again");
            assert!(pair.has(&lease));
            lease.release().await.expect("held");
        }
    }
}

/// An answer that grants nothing needs no replica.
#[tokio::test]
async fn busy_lock_is_busy_also_without_replicas() {
    let pair = Pair::start();
    let (ann, bob) = (pair.client(PATIENT).await, pair.client(PATIENT).await);
    let lease = ann.mutex("x").ttl(TTL * 4).acquire().await.expect("free");
    // Bob's client has written nothing that a replica may lack.
    pair.replica.pause();
    let tried = soon("an answer", bob.mutex("x").try_acquire()).await;
    assert!(tried.expect("an answer").is_none());
    pair.replica.resume();
    lease.release().await.expect("held");
}

#[tokio::test]
async fn unconfirmed_renewal_leaves_the_deadline() {
    let primary = RedisServer::builder()
        .option("repl-diskless-sync-delay", "0")
        .option("repl-timeout", "1000000")
        .virtual_clock();
    let pair = Pair::of(primary.start());
    let (time, clock) = test_time(slice::from_ref(&pair.primary));
    let url = format!("{}?replicas=1&replicas_timeout=50ms", pair.primary.url());
    let client = timed(&clock).connect(&url).await.expect("a connection");
    let lease = take(&client, "x").await;
    renewed(&time, &lease).await;

    pair.replica.pause();
    let until = lease.valid_until();
    time.pass(lease.valid_for() / 2);
    let is_doubtful = eventually("a renewal fails", async || lease.is_doubtful());
    passing(&time, "a renewal fails", is_doubtful).await;
    let doubt = lease.doubt().expect("it is doubtful");
    assert!(doubt.contains("0 of 1 replicas confirmed"), "{doubt}");
    // Its renewals are executed all the same.
    assert!(pair.primary.cli(&["PTTL", "x"]).int() > 25_000);
    assert_eq!(lease.valid_until(), until);
    let lost = as_seconds_pass(&time, "the loss", lease.lost()).await;
    assert!(matches!(lost.cause, LossCause::Deadline(_)), "{lost}");
    assert_eq!(lease.valid_until(), until, "no renewal has moved it");
    drop(lease);
    let is_released = eventually("what nobody holds is released", async || {
        pair.primary.cli(&["EXISTS", "x"]).int() == 0
    });
    passing(&time, "a release", is_released).await;
    pair.replica.resume();
}

#[tokio::test]
async fn waiter_claims_its_grant_and_has_it_confirmed() {
    let pair = Pair::start();
    let (ann, bob) = (pair.client(PATIENT).await, pair.client(PATIENT).await);
    for is_paused in [false, true] {
        let held = ann.mutex("x").ttl(TTL * 4).acquire().await.expect("free");
        let asked = acquire(&bob, "x");
        eventually("it waits", async || !look(&ann, "x").await.queue.is_empty()).await;
        if is_paused {
            pair.replica.pause();
        }
        soon("a release", held.release()).await.expect("held");
        if is_paused {
            eventually("it is bob's", async || {
                look(&ann, "x").await.queue.is_empty()
            })
            .await;
            sleep(A_WHILE).await;
            assert!(!asked.is_finished(), "no replica has confirmed it");
            pair.replica.resume();
        }
        let lease = lease_of(asked).await;
        assert!(pair.has(&lease));
        lease.release().await.expect("held");
    }
}

/// A renewal waits until the connection is free, and must not be executed after a release that keeps the lock for a short time.
#[tokio::test]
async fn release_that_keeps_the_lock_follows_its_renewals() {
    let pair = Pair::start();
    let client = pair.client(PATIENT).await;
    let kept = Duration::from_secs(10);
    let lock = client.mutex("x").ttl(TTL * 4).at_least(kept);
    let lease = lock.acquire().await.expect("free");
    pair.replica.pause();
    let other = acquire(&client, "y");
    eventually("it is granted", async || {
        pair.primary.cli(&["EXISTS", "y"]).int() == 1
    })
    .await;
    let renewed = timeout(A_WHILE, lease.extend(TTL * 8)).await;
    renewed.expect_err("it waits");
    let released = beside(lease.release());
    sleep(A_WHILE).await;
    pair.replica.resume();
    let released = soon("a release", released).await.expect("no panic");
    released.expect("held");
    lease_of(other).await.release().await.expect("held");
    let left = pair.primary.cli(&["PTTL", "x"]).int();
    assert!((1..=10_000).contains(&left), "{left}");
}

/// Each of many locks that are taken and renewed at once.
#[tokio::test]
async fn many_are_confirmed_together() {
    let pair = Pair::start();
    let client = pair.client(PATIENT).await;
    let asked: Vec<_> = (0..200)
        .map(|number| acquire(&client, &format!("x{number}")))
        .collect();
    let mut leases = Vec::new();
    for asked in asked {
        leases.push(lease_of(asked).await);
        assert!(leases.last().is_some_and(|lease| pair.has(lease)));
    }
    let extended = leases.iter().map(|lease| lease.extend(TTL * 8));
    for extended in futures_util::future::join_all(extended).await {
        extended.expect("held");
    }
    for lease in leases {
        assert!(pair.replica.cli(&["PTTL", lease.name()]).int() > 100_000);
        lease.release().await.expect("held");
    }
}

#[tokio::test]
async fn cluster_confirms_at_the_node_that_has_the_lock() {
    let cluster = RedisCluster::start(1, 1);
    let [primary, replica] = cluster.nodes() else {
        panic!("two nodes");
    };
    let url = format!("redis+cluster://{}/?{PATIENT}", cluster.addresses());
    let (ann, bob) = (connect(&url).await, connect(&url).await);
    let held = ann.mutex("x").ttl(TTL * 4).acquire().await.expect("free");
    assert!(has(replica, &held));
    let asked = acquire(&bob, "x");
    eventually("it waits", async || !look(&ann, "x").await.queue.is_empty()).await;
    replica.pause();
    soon("a release", held.release()).await.expect("held");
    sleep(A_WHILE).await;
    assert!(!asked.is_finished(), "no replica has confirmed it");
    assert_eq!(primary.cli(&["EXISTS", "x"]).int(), 1);
    replica.resume();
    let lease = lease_of(asked).await;
    assert!(has(replica, &lease));
    lease.release().await.expect("held");
}

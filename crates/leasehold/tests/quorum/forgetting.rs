//! Servers that lose their data, or the latest of them.

use std::time::Duration;

use leasehold::{Clock, Fence, StoreErrorKind};
use testkit::RedisServer;

use crate::common::{eventually, timed};
use crate::scene::{
    NAME, Nodes, TTL, Timed, connect, connected, exists, host, lock, millis, refusal, take,
};

/// The rest of a quarantine, as an error shows it.
fn left(said: &str) -> Duration {
    let (_, rest) = said.split_once("gives no vote for another ").expect(said);
    let (seconds, _) = rest.split_once("s,").expect(said);
    Duration::from_secs_f64(seconds.parse().expect(said))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_server_with_a_deciding_vote_elects_no_other() {
    let nodes = Nodes::start();
    let (one, two) = (nodes.client().await, nodes.client().await);
    let mutex = lock(&one).auto_renew(false);
    let lease = mutex.try_acquire().await.expect("an answer");
    let lease = lease.expect("it is free");
    nodes.vote(&[0, 1, 2]).await;
    // The lease has two votes, and then one of these servers forgets its vote.
    assert_eq!(nodes.0[1].cli(&["DEL", NAME]).int(), 1);
    nodes.0[0].restart();
    for _ in 0..3 {
        let second = two.mutex(NAME).acquire_within(millis(100)).await;
        assert!(second.is_err(), "a second holder: {second:?}");
    }
    assert!(!lease.is_lost());

    nodes.0[2].kill();
    let error = refusal(&two).await;
    let said = error.to_string();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{said}");
    assert!(said.contains(&host(&nodes.0[0])), "{said}");
    let first = left(&said);
    assert!(first > Duration::from_secs(20), "{said}");
    eventually("the quarantine counts down", async || {
        left(&refusal(&two).await.to_string()) < first
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_is_in_quarantine_and_the_others_decide() {
    let nodes = Timed::start();
    let (one, two) = (nodes.client().await, nodes.client().await);
    let lease = take(&one).await;
    nodes.vote(&[0, 1, 2]).await;
    let flush = |server: &RedisServer| assert_eq!(server.cli(&["FLUSHALL"]).text(), "OK");
    flush(&nodes.0[1]);
    let busy = two.mutex(NAME).try_acquire().await;
    assert!(busy.expect("two servers answer").is_none());
    nodes.renewed(&lease).await;
    assert_eq!(nodes.votes(), 2, "the flushed server gives no vote");
    let fence = lease.fence();
    nodes.release(lease).await;
    let next = nodes.passing("the lock", take(&two)).await;
    assert!(next.fence() > fence);
    assert_eq!(nodes.votes(), 2, "nor for the next one");
    nodes.outlives_its_ttl(&next).await;
    nodes.release(next).await;
    nodes.are_clean().await;
}

/// Makes a server a replica of another one for a moment.
async fn copy(from: &RedisServer, to: &RedisServer) {
    let port = from.port().to_string();
    let follow = |whom: [&str; 2]| {
        let told = to.cli(&["REPLICAOF", whom[0], whom[1]]);
        assert_eq!(told.text(), "OK");
    };
    follow(["127.0.0.1", &port]);
    eventually("the copy", async || {
        let info = to.cli(&["INFO", "replication"]).text();
        info.contains("master_link_status:up")
    })
    .await;
    follow(["NO", "ONE"]);
}

/// A lease has two votes, and then one of these servers has the data of the third. Clients believe that nodes keep their data.
async fn copied_server_elects_no_other(options: &str) {
    let nodes = Nodes::start();
    let url = nodes.url(options);
    let (one, two) = (connect(&url).await, connect(&url).await);
    // A lock of the other client, so that the servers have counters and its connections are used.
    let before = take(&two).await;
    before.release().await.expect("it is held");
    nodes.are_clean().await;
    let mutex = lock(&one).auto_renew(false);
    let lease = mutex.try_acquire().await.expect("an answer");
    let lease = lease.expect("it is free");
    nodes.vote(&[0, 1, 2]).await;
    assert_eq!(nodes.0[1].cli(&["DEL", NAME]).int(), 1);
    copy(&nodes.0[1], &nodes.0[0]).await;
    // The second one connects after the copy.
    for client in [two, connect(&url).await] {
        for _ in 0..3 {
            let second = client.mutex(NAME).acquire_within(millis(100)).await;
            assert!(second.is_err(), "a second holder: {second:?}");
        }
    }
    assert!(!lease.is_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_another_server_elects_no_other() {
    copied_server_elects_no_other("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_at_a_durable_quorum_elects_no_other() {
    copied_server_elects_no_other("?durable=1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_started_again_with_its_data_keeps_out() {
    let nodes = Nodes::start_with(|server| {
        server
            .option("appendonly", "yes")
            .option("appendfsync", "always")
    });
    // Nobody says that the servers keep their data.
    let (one, two) = (nodes.client().await, nodes.client().await);
    let lease = take(&one).await;
    nodes.vote(&[0, 1, 2]).await;
    nodes.0[0].restart();
    nodes.0[1].restart();
    eventually("the two servers are back", async || {
        let said = refusal(&two).await.to_string();
        said.contains("gives no vote for another")
    })
    .await;
    let extended = lease.extend(TTL).await;
    assert!(extended.is_err(), "renewed by old votes: {extended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_vote_renews_no_lease() {
    let nodes = Nodes::start();
    let client = nodes.client().await;
    let mutex = lock(&client).auto_renew(false);
    let lease = mutex.try_acquire().await.expect("an answer");
    let lease = lease.expect("it is free");
    nodes.vote(&[0, 1, 2]).await;
    // One server alone has voted for the lease, and another one copies that vote.
    for node in [1, 2] {
        assert_eq!(nodes.0[node].cli(&["DEL", NAME]).int(), 1);
    }
    copy(&nodes.0[0], &nodes.0[1]).await;
    assert_eq!(nodes.votes(), 2);
    let extended = lease.extend(TTL).await;
    assert!(extended.is_err(), "renewed by a copy: {extended:?}");
}

/// From now on, each start of a server finds its present data, and none of the later ones.
fn dump(nodes: &Nodes) {
    for server in &nodes.0 {
        assert_eq!(server.cli(&["SAVE"]).text(), "OK");
    }
}

/// The fence of a client whose clock is ahead of all others, which has taken and released the lock.
async fn fence_from_ahead(nodes: &Timed) -> Fence {
    let clock = Clock::manual();
    clock.advance(nodes.clock.now().since(clock.now()) + Duration::from_secs(9));
    let client = connected(timed(&clock), &nodes.url("")).await;
    let lease = take(&client).await;
    let fence = lease.fence();
    lease.release().await.expect("it is held");
    nodes.are_clean().await;
    fence
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_rolled_back_in_turn_lower_no_fence() {
    let nodes = Timed::start();
    fence_from_ahead(&nodes).await;
    dump(&nodes);
    for back in 0..3 {
        let fence = fence_from_ahead(&nodes).await;
        nodes.0[back].restart();
        assert!(exists(&nodes.0[back], "leasehold:quorum"), "the old data");
        // It has heard of no fence.
        let client = nodes.client().await;
        let lease = nodes.passing("the lock", take(&client)).await;
        assert!(lease.fence() > fence, "{back}");
        let begun = nodes.clock.now();
        eventually("it votes again", async || {
            nodes.renewed(&lease).await;
            nodes.votes() == 3
        })
        .await;
        // A second longer than the longest TTL.
        let quarantine = nodes.clock.now().since(begun);
        assert!(quarantine > TTL, "{back}: {quarantine:?}");
        nodes.release(lease).await;
    }
}

/// The old data have a hold, too, that has ended since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_rolled_back_counts_for_nothing() {
    for back in [[0, 1], [0, 2], [1, 2]] {
        let nodes = Timed::start();
        let client = nodes.client().await;
        let lease = take(&client).await;
        nodes.vote(&[0, 1, 2]).await;
        let ended = lease.detach(TTL).await;
        let (ended, _) = ended.expect("a majority confirms it");
        dump(&nodes);
        let released = ended.clone().release().await;
        released.expect("it is held");
        nodes.are_clean().await;
        let fence = fence_from_ahead(&nodes).await;

        let begun = nodes.clock.now();
        for node in back {
            nodes.0[node].restart();
            assert!(exists(&nodes.0[node], NAME), "the old hold");
        }
        let renewed = nodes.passing("an answer", ended.renew(TTL)).await;
        assert!(renewed.is_err(), "{back:?}: {renewed:?}");
        let other = nodes.client().await;
        let refused = nodes.passing("an answer", refusal(&other)).await;
        assert!(left(&refused.to_string()) > TTL / 2, "{back:?}: {refused}");
        nodes.time.pass(TTL);
        let mutex = lock(&other);
        let waited = nodes.passing("the lock", mutex.acquire_within(TTL)).await;
        let lease = waited.expect("the quarantine ends");
        // A second longer than the longest TTL.
        let quarantine = nodes.clock.now().since(begun);
        assert!(quarantine > TTL, "{back:?}: {quarantine:?}");
        assert!(lease.fence() > fence, "{back:?}");
        nodes.release(lease).await;
        nodes.are_clean().await;
    }
}

//! A server that lacks the vote of a lease gives it again.

use testkit::RedisServer;

use crate::common::eventually;
use crate::scene::{NAME, Timed, take};

/// A lease is renewed while the second server loses its vote.
async fn is_filled_up(lose: impl Fn(&RedisServer)) {
    let nodes = Timed::start();
    let client = nodes.client().await;
    let lease = take(&client).await;
    nodes.vote(&[0, 1, 2]).await;
    lose(&nodes.0[1]);
    assert_eq!(nodes.votes(), 2);
    // A quarantine is a second longer than the longest TTL.
    eventually("the third vote", async || {
        nodes.renewed(&lease).await;
        nodes.votes() == 3
    })
    .await;
    let inspected = client.inspect_nodes(NAME).await.expect("it is open");
    assert_eq!(inspected.votes(), 3, "{inspected:?}");

    // With this vote, another server may fail.
    nodes.0[0].kill();
    nodes.outlives_its_ttl(&lease).await;
    nodes.release(lease).await;
    nodes.0[0].restart();
    nodes.are_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_votes_again_after_its_quarantine() {
    is_filled_up(|server| assert_eq!(server.cli(&["FLUSHALL"]).text(), "OK")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_key_was_deleted_votes_again() {
    is_filled_up(|server| assert_eq!(server.cli(&["DEL", NAME]).int(), 1)).await;
}

//! A server that lacks the vote of a lease gives it again.

use testkit::RedisServer;

use crate::common::{eventually, mark};
use crate::scene::{NAME, Nodes, connect, host, millis};

/// A lease is renewed while the second server loses its vote. The quarantine of these terms is 13 s.
async fn is_filled_up(lose: impl Fn(&RedisServer)) {
    let nodes = Nodes::start();
    nodes.0.iter().for_each(|server| mark(server, 1_000));
    let hosts: Vec<String> = nodes.0.iter().map(host).collect();
    let client = connect(&format!("redis+quorum://{}/?max_ttl=1s", hosts.join(","))).await;
    let mutex = client.mutex(NAME).ttl(millis(900));
    let lease = mutex.try_acquire().await.expect("an answer");
    let lease = lease.expect("it is free");
    nodes.vote(&[0, 1, 2]).await;
    lose(&nodes.0[1]);
    assert_eq!(nodes.votes(), 2);
    eventually("the third vote", async || nodes.votes() == 3).await;
    let inspected = client.inspect_nodes(NAME).await.expect("it is open");
    assert_eq!(inspected.votes(), 3, "{inspected:?}");

    // With this vote, another server may fail.
    nodes.0[0].kill();
    crate::scene::outlives_its_ttl(&lease).await;
    lease.release().await.expect("two servers confirm it");
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

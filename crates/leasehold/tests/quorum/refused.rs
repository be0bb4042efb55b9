//! Servers that are no good as nodes: a replica, one with another password, and a full one. The others decide.

use leasehold::{Client, StoreErrorKind};
use testkit::RedisServer;

use crate::scene::{NAME, Nodes, connect, host, mark, millis, outlives_its_ttl, refusal, take};

/// A client can hold the lock without the first server. Without the second one it cannot, and learns about the first.
async fn two_decide(nodes: &Nodes, client: &Client, kind: StoreErrorKind, why: &str) {
    let lease = take(client, millis(900)).await;
    outlives_its_ttl(&lease).await;
    lease.release().await.expect("two servers confirm it");

    nodes.0[1].kill();
    let error = refusal(client).await;
    let said = error.to_string();
    assert_eq!(error.kind, kind, "{said}");
    assert!(said.contains(&host(&nodes.0[0])), "{said}");
    assert!(said.contains(why), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica_is_no_node() {
    let (nodes, primary) = (Nodes::start(), RedisServer::start());
    let client = nodes.client().await;
    let lease = take(&client, millis(5000)).await;
    let port = primary.port().to_string();
    let made = nodes.0[0].cli(&["REPLICAOF", "127.0.0.1", &port]);
    assert_eq!(made.text(), "OK");
    lease.release().await.expect("two servers confirm it");
    let newcomer = nodes.client().await;
    let lease = take(&newcomer, millis(5000)).await;
    lease.release().await.expect("two servers confirm it");
    two_decide(&nodes, &client, StoreErrorKind::ReadOnly, "a replica of").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_password_is_no_node() {
    let nodes = Nodes(vec![
        RedisServer::builder().password("right").start(),
        RedisServer::start(),
        RedisServer::start(),
    ]);
    nodes.0.iter().for_each(mark);
    let hosts = nodes.0.iter().map(host).collect::<Vec<_>>().join(",");
    let client = connect(&format!("redis+quorum://:S3CR3T@{hosts}/")).await;
    two_decide(&nodes, &client, StoreErrorKind::Denied, "WRONGPASS").await;
    let said = format!("{:?}", refusal(&client).await);
    assert!(!said.contains("S3CR3T"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_gives_no_vote_and_lets_go() {
    let nodes = Nodes::start_with(|server| server.option("maxmemory-policy", "noeviction"));
    let client = nodes.client().await;
    let lease = take(&client, millis(5000)).await;
    nodes.vote(&[0, 1, 2]).await;
    let full = nodes.0[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(full.text(), "OK");
    lease.release().await.expect("a release takes no memory");
    nodes.are_clean().await;
    two_decide(&nodes, &client, StoreErrorKind::Full, "OOM").await;
    assert_eq!(nodes.0[0].cli(&["EXISTS", NAME]).int(), 0);
}

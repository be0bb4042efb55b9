//! A server that lacks the vote of a lease gives it again. So no number of outages ends a lease, if they come one after the other.

use testkit::RedisServer;

use crate::common::eventually;
use crate::scene::{NAME, TTL, Timed, take};

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

/// Five servers that keep their data, or lose them with each restart, and the URL of their quorum.
fn five(keep_data: bool) -> (Timed, String) {
    let nodes = Timed::many(5, |server| {
        let appendonly = if keep_data { "yes" } else { "no" };
        server
            .option("appendonly", appendonly)
            .option("appendfsync", "always")
    });
    let url = nodes.url(if keep_data { "?durable=1" } else { "" });
    (nodes, url)
}

/// Each server in turn is down for longer than the TTL, is started again, and votes before the next one goes down.
async fn outlives_a_rolling_restart(nodes: &Timed, renew: impl AsyncFn()) {
    nodes.vote(&[0, 1, 2, 3, 4]).await;
    for server in &nodes.0 {
        server.kill();
        for _ in 0..4 {
            renew().await;
        }
        server.restart();
        // If it has lost its data, after its quarantine.
        eventually("five votes", async || {
            renew().await;
            nodes.votes() == 5
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_a_rolling_restart_of_all_servers() {
    for keep_data in [false, true] {
        let (nodes, url) = five(keep_data);
        let client = nodes.connect(&url).await;
        let lease = take(&client).await;
        outlives_a_rolling_restart(&nodes, async || nodes.renewed(&lease).await).await;
        nodes.release(lease).await;
        nodes.are_clean().await;
    }
}

/// Each renewal is by a new client, as with `leasehold renew`: it knows no votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_outlives_a_rolling_restart_of_all_servers() {
    for keep_data in [false, true] {
        let (nodes, url) = five(keep_data);
        let client = nodes.connect(&url).await;
        let detached = take(&client).await.detach(TTL).await;
        let (detached, _) = detached.expect("a majority confirms it");
        outlives_a_rolling_restart(&nodes, async || {
            nodes.time.pass(TTL / 2);
            let client = nodes.connect(&url).await;
            // A client that ends waits only briefly for servers that it has not reached yet.
            eventually("all but one are reached", async || {
                let inspected = client.inspect_nodes(NAME);
                let inspected = nodes.passing("a look", inspected).await;
                let views = inspected.expect("it is open").nodes;
                views.iter().filter(|view| view.seen.is_ok()).count() >= 4
            })
            .await;
            let held = client.detached(NAME, detached.token()).expect("a token");
            let renewed = nodes.passing("a renewal", held.renew(TTL)).await;
            renewed.expect("it is held");
            nodes.passing("the end", client.close()).await;
        })
        .await;
        let client = nodes.connect(&url).await;
        let held = client.detached(NAME, detached.token()).expect("a token");
        let checked = nodes.passing("a check", held.check()).await;
        checked.expect("it is held");
        let released = nodes.passing("a release", held.release()).await;
        released.expect("it was held");
    }
}

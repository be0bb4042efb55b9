//! Clients that name more servers than others, a new server at the address of another, and verbs that a quorum lacks.

use leasehold::{Error, StoreErrorKind};
use testkit::RedisServer;

use crate::common::{LONG, stand_in_line};
use crate::scene::{NAME, Nodes, connect, host, lock, millis, refusal, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_names_two_servers_more_gets_no_vote() {
    let (nodes, more) = (Nodes::start(), [RedisServer::start(), RedisServer::start()]);
    let client = nodes.client().await;
    let lease = take(&client).await;
    let hosts = nodes.0.iter().chain(&more).map(host);
    let hosts: Vec<String> = hosts.collect();
    // Three of five would be a majority: the new ones, and one that holds nothing for the lease.
    let other = connect(&format!("redis+quorum://{}/", hosts.join(","))).await;
    for _ in 0..3 {
        let refused = refusal(&other).await;
        let said = refused.to_string();
        assert_eq!(refused.kind, StoreErrorKind::Misconfigured, "{said}");
        assert!(said.contains("belongs to a quorum of 3 nodes"), "{said}");
        assert!(said.contains("this client counts 5 nodes"), "{said}");
    }
    lease.release().await.expect("it is held");
    nodes.are_clean().await;
    for server in &more {
        assert_eq!(server.cli(&["EXISTS", NAME]).int(), 0);
    }
}

/// Of a step of such a client that frees the lock, the next waiter would get a fence of another counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_another_max_ttl_is_refused_at_every_step() {
    let nodes = Nodes::start();
    let (holder, waiter) = (nodes.client().await, nodes.client().await);
    let stranger = connect(&nodes.url("?max_ttl=50s")).await;
    let lease = take(&holder).await;
    let token = lease.token();
    let mut waiting = tokio::task::JoinSet::new();
    stand_in_line(&mut waiting, 0, lock(&waiter)).await;

    let detached = || stranger.detached(NAME, &token).expect("a token");
    let steps = [
        stranger.mutex(NAME).ttl(LONG).try_acquire().await.err(),
        stranger.break_lock(NAME, lease.fence()).await.err(),
        stranger.inspect(NAME).await.err(),
        detached().check().await.err(),
        detached().renew(LONG).await.err(),
        detached().release().await.err(),
    ];
    for (at, error) in steps.into_iter().enumerate() {
        let Some(Error::Store(error)) = error else {
            panic!("step {at}: {error:?}");
        };
        let said = error.to_string();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{at}: {said}");
        assert!(said.contains("leases of at most 50s"), "{at}: {said}");
        assert!(!error.may_have_taken_effect, "{at}: {said}");
    }
    let views = stranger
        .inspect_nodes(NAME)
        .await
        .expect("it is open")
        .nodes;
    assert!(views.iter().all(|view| view.seen.is_err()), "{views:?}");

    let fence = lease.fence();
    lease.release().await.expect("it was not broken");
    let (_, next) = waiting.join_next().await.expect("one").expect("no panic");
    let next = next.expect("its turn");
    assert!(next.fence() > fence);
    for server in &nodes.0 {
        let others = server.cli(&["KEYS", "leasehold:quorum:3:50000:*"]);
        assert!(others.array().is_empty(), "{others:?}");
    }
    next.release().await.expect("it is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_server_at_the_address_of_a_node_keeps_out() {
    let nodes = Nodes::start();
    let (one, two) = (nodes.client().await, nodes.client().await);
    let lease = one.mutex(NAME).auto_renew(false).try_acquire().await;
    let lease = lease.expect("an answer").expect("it is free");
    nodes.vote(&[0, 1, 2]).await;
    // Two new machines would be a majority against the lease.
    nodes.0[0].restart();
    nodes.0[1].restart();
    for _ in 0..3 {
        let refused = two.mutex(NAME).acquire_within(millis(100)).await;
        assert!(refused.is_err(), "a second holder: {refused:?}");
    }
    let said = refusal(&two).await.to_string();
    assert!(said.contains("gives no vote for another"), "{said}");
    let votes = nodes.0[..2]
        .iter()
        .map(|server| server.cli(&["EXISTS", NAME]).int());
    assert_eq!(votes.sum::<i64>(), 0);
    drop(lease);
}

#[cfg(feature = "timestamp")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timestamp_lock_is_refused_with_a_sentence() {
    let nodes = Nodes::start();
    let client = nodes.client().await;
    let refused = client.timestamp_lock(NAME).try_acquire().await;
    let said = refused.expect_err("a quorum has none").to_string();
    assert!(
        said.contains("in a Redis, and quorum of 3: redis://"),
        "{said}"
    );
    assert!(said.ends_with("is none: use a mutex"), "{said}");
}

//! Servers that are killed or stopped.

use leasehold::LossCause;
use tokio::time::{sleep, timeout};

use crate::common::{LONG, timed};
use crate::scene::{NAME, Nodes, TTL, Timed, host, lock, millis, refusal, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_one_of_three_is_killed() {
    for killed in 0..3 {
        let nodes = Timed::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        let lease = take(&one).await;
        nodes.vote(&[0, 1, 2]).await;
        nodes.0[killed].kill();
        nodes.outlives_its_ttl(&lease).await;
        let fence = lease.fence();
        let busy = nodes.passing("an answer", lock(&two).try_acquire()).await;
        assert!(busy.expect("two servers answer").is_none(), "{killed}");
        nodes.release(lease).await;
        let next = nodes.passing("the lock", lock(&two).acquire()).await;
        let next = next.expect("it is free");
        assert!(next.fence() > fence);
        nodes.release(next).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_when_any_one_server_is_killed() {
    for killed in 0..3 {
        let nodes = Timed::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        let lease = take(&one).await;
        nodes.vote(&[0, 1, 2]).await;
        let mut waiting = tokio::task::JoinSet::new();
        crate::common::stand_in_line(&mut waiting, 0, lock(&two)).await;
        nodes.0[killed].kill();
        nodes.release(lease).await;
        // Long before the vote at the killed server would have ended.
        let next = nodes.passing("its turn", waiting.join_next()).await;
        let (_, next) = next.expect("one waits").expect("no panic");
        nodes.release(next.expect("its turn")).await;
    }
}

/// The clock of the client stands still. So no step waits for a time limit or for a pause, and each ends by the answers of two servers.
/// The client has used the lock before: one that knows nothing of it would wait 25 ms for a silent lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_delays_no_one() {
    let nodes = Timed::start();
    let client = nodes.client().await;
    let mutex = lock(&client);
    let cycles = async |count: u32| {
        for _ in 0..count {
            let lease = mutex.acquire().await.expect("two servers answer");
            lease.release().await.expect("two servers confirm it");
        }
    };
    cycles(1).await;
    nodes.are_clean().await;
    for stopped in &nodes.0 {
        stopped.pause();
        let done = timeout(LONG, cycles(30)).await;
        done.expect("nobody waits for the stopped server");
        stopped.resume();
        nodes.are_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_without_a_majority_is_lost_on_time() {
    let nodes = Timed::start_with(|server| {
        server
            .option("appendonly", "yes")
            .option("appendfsync", "always")
    });
    let url = nodes.url("?durable=1");
    let (holder, two) = (nodes.connect(&url).await, nodes.connect(&url).await);
    let lease = take(&holder).await;
    nodes.vote(&[0, 1, 2]).await;
    nodes.0[0].kill();
    nodes.0[1].kill();
    let one = millis(1);
    nodes.time.pass(lease.valid_for().saturating_sub(one));
    // Its renewals fail. That is no loss.
    let lost = timeout(millis(100), lease.lost()).await;
    assert!(lost.is_err() && !lease.is_lost(), "{lost:?}");
    nodes.time.pass(one);
    assert!(lease.is_lost());
    let lost = timeout(LONG, lease.lost()).await.expect("it is told");
    assert!(matches!(lost.cause, LossCause::Deadline(_)), "{lost}");

    // An acquisition, a look and a new client say the same.
    let asked = nodes.passing("an answer", refusal(&two)).await;
    let looked = nodes.passing("an answer", two.inspect(NAME)).await;
    let connecting = timed(&nodes.clock).connect(&url);
    let connected = nodes.passing("an answer", connecting).await;
    for said in [
        asked.to_string(),
        looked.expect_err("one server is up").to_string(),
        connected.expect_err("one server is up").to_string(),
    ] {
        let (_, why) = said.split_once("no majority (2 of 3 nodes").expect(&said);
        let is_named = |node: usize| why.contains(&host(&nodes.0[node]));
        assert_eq!([0, 1, 2].map(is_named), [true, true, false], "{said}");
    }

    nodes.0[0].restart();
    // The vote of the third server was renewed.
    nodes.time.pass(TTL);
    let mutex = lock(&two);
    let next = nodes.passing("two servers are back", mutex.acquire_within(TTL));
    let next = next.await;
    let next = next.expect("the lease has ended");
    assert!(next.fence() > lease.fence());
    nodes.release(next).await;
}

/// The client is not closed, and a majority has answered everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_dropped_leaves_no_vote_at_a_late_server() {
    for late in 0..3 {
        let nodes = Nodes::start();
        let client = nodes.client().await;
        let first = take(&client).await;
        nodes.vote(&[0, 1, 2]).await;
        first.release().await.expect("it is held");
        nodes.are_clean().await;
        nodes.0[late].pause();
        let lease = take(&client).await;
        drop((lease, client));
        // Longer than the other two take to answer, and shorter than the limit of a request.
        sleep(millis(100)).await;
        nodes.0[late].resume();
        nodes.are_clean().await;
    }
}

//! Servers that are killed or stopped.

use leasehold::LossCause;
use tokio::time::timeout;

use crate::common::LONG;
use crate::scene::{NAME, Nodes, connect, host, millis, now, outlives_its_ttl, refusal, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_one_of_three_is_killed() {
    for killed in 0..3 {
        let nodes = Nodes::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        let lease = take(&one, millis(900)).await;
        nodes.0[killed].kill();
        outlives_its_ttl(&lease).await;
        let fence = lease.fence();
        let busy = two.mutex(NAME).try_acquire().await;
        assert!(busy.expect("two servers answer").is_none(), "{killed}");
        lease.release().await.expect("two servers confirm it");
        let begun = now();
        let next = two.mutex(NAME).acquire().await.expect("it is free");
        let took = now().since(begun);
        assert!(took < millis(1000), "{killed}: {took:?}");
        assert!(next.fence() > fence);
        next.release().await.expect("it is held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_when_any_one_server_is_killed() {
    for killed in 0..3 {
        let nodes = Nodes::start();
        let (one, two) = (nodes.client().await, nodes.client().await);
        let lease = take(&one, millis(5000)).await;
        let mut waiting = tokio::task::JoinSet::new();
        let mutex = two.mutex(NAME);
        crate::common::stand_in_line(&mut waiting, 0, mutex).await;
        nodes.0[killed].kill();
        let begun = now();
        lease.release().await.expect("two servers confirm it");
        let next = timeout(LONG, waiting.join_next()).await.expect("in time");
        let (_, next) = next.expect("one waits").expect("no panic");
        let took = now().since(begun);
        println!("killed {killed}: the waiter is served after {took:?}");
        assert!(took < millis(2500), "{killed}: {took:?}");
        next.expect("its turn").release().await.expect("it is held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_delays_no_one() {
    let nodes = Nodes::start();
    let client = nodes.client().await;
    let mutex = client.mutex(NAME);
    for stopped in &nodes.0 {
        stopped.pause();
        let mut times = Vec::new();
        for _ in 0..30 {
            let begun = now();
            let lease = mutex.acquire().await.expect("two servers answer");
            times.push(now().since(begun));
            lease.release().await.expect("two servers confirm it");
        }
        times.sort_unstable();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("median {median:?}, longest {longest:?}");
        assert!(median < millis(20), "{median:?}");
        assert!(longest < millis(1000), "{longest:?}");
        stopped.resume();
        nodes.are_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_without_a_majority_is_lost_on_time() {
    let nodes = Nodes::start_with(|server| {
        server
            .option("appendonly", "yes")
            .option("appendfsync", "always")
    });
    let url = nodes.url("?durable=1");
    let (one, two) = (connect(&url).await, connect(&url).await);
    let lease = take(&one, millis(1200)).await;
    nodes.0[0].kill();
    nodes.0[1].kill();
    let lost = timeout(LONG, lease.lost()).await.expect("it is told");
    let late = now().since(lease.valid_until());
    assert!(matches!(lost.cause, LossCause::Deadline(_)), "{lost}");
    assert!(late < millis(300), "{late:?} late");

    let error = refusal(&two).await;
    let said = error.to_string();
    assert!(said.contains("no majority (2 of 3 nodes"), "{said}");
    assert!(said.contains(&host(&nodes.0[0])), "{said}");

    nodes.0[0].restart();
    let next = two.mutex(NAME).acquire_within(LONG).await;
    let next = next.expect("two servers are back");
    assert!(next.fence() > lease.fence());
    next.release().await.expect("it is held");
}

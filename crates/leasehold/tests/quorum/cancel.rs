//! Acquisitions that are dropped at any poll, or at any moment. They leave no vote and no waiter.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use leasehold::Client;
use tokio::time::sleep;

use crate::common::{MANY, MOMENTS, poll_n_times_then_drop, poll_once_then_drop_after};
use crate::scene::{Nodes, lock, millis, take};

/// Drops acquisitions of a free lock at every poll, and at many moments.
async fn drops_acquisitions(client: &Client) {
    let mutex = lock(client);
    let mut ended = false;
    for n in 1..=MANY {
        let output = poll_n_times_then_drop(n, mutex.acquire()).await;
        ended = output.is_some();
        drop(output.map(|lease| lease.expect("two servers answer")));
        if ended {
            break;
        }
    }
    assert!(ended);
    for pause in MOMENTS {
        poll_once_then_drop_after(mutex.acquire(), sleep(pause)).await;
        poll_once_then_drop_after(mutex.try_acquire(), sleep(pause)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_acquisition_leaves_no_vote() {
    let nodes = Nodes::start();
    let client = nodes.client().await;
    drops_acquisitions(&client).await;
    nodes.are_clean().await;
    let lease = take(&client).await;
    lease.release().await.expect("it is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_waiter_leaves_no_vote() {
    let nodes = Nodes::start();
    let (one, two) = (nodes.client().await, nodes.client().await);
    let mutex = lock(&two);
    for pause in MOMENTS {
        let lease = lock(&one).acquire().await.expect("its turn");
        poll_once_then_drop_after(mutex.acquire(), sleep(pause)).await;
        poll_n_times_then_drop(1, mutex.acquire()).await;
        lease.release().await.expect("it is held");
        // Dropped while the lock is being handed over.
        let lease = lock(&one).acquire().await.expect("its turn");
        let mut waiting = pin!(mutex.acquire());
        let polled =
            poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_ready())).await;
        assert!(!polled, "it is held");
        sleep(millis(20)).await;
        lease.release().await.expect("it is held");
        sleep(pause).await;
        let _ended =
            poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_ready())).await;
    }
    nodes.are_clean().await;
}

/// It is not closed, and a majority has answered everything.
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

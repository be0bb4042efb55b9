//! A server that loses its data: it is killed and restarted empty, or an operator empties it.

use leasehold::{Fence, StoreErrorKind, gate};
use testkit::{RedisServer, eventually};

use crate::common::lost;
use crate::scene::{
    LONG, PLENTY, Timed, connect, is_free, joined, lost_by_verdict, queue_up, queued, refused,
    store_error, take, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_empty() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = take(&one, "held", LONG).await;
    let waited_for = take(&one, "waited for", LONG).await;
    let waiter = queue_up(&server, &two, "waited for", LONG);
    let fences = (held.fence(), waited_for.fence());

    server.kill();
    let host = format!("redis://127.0.0.1:{}", server.port());
    let nobody = within("a verdict", two.mutex("other").try_acquire()).await;
    refused(nobody, StoreErrorKind::Unreachable, &host);
    assert!(!held.is_lost() && !waited_for.is_lost(), "no verdict yet");
    server.restart();

    lost_by_verdict(&held).await;
    lost_by_verdict(&waited_for).await;
    let next = joined("the waiter goes on", waiter)
        .await
        .expect("it survived the restart");
    assert!(next.fence() > fences.1, "the fence rises");
    // The client connects again by itself.
    let again = take(&one, "held", LONG).await;
    assert!(again.fence() > fences.0, "the fence rises");
    assert!(held.release().await.is_err(), "the work was unprotected");
    assert!(!is_free(&server, "held"), "the next holder's lock stays");
    again.release().await.expect("held");
    next.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall_under_a_holder() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = take(&one, "orders", LONG).await;
    let waiter = queue_up(&server, &two, "orders", LONG);
    server.cli(&["FLUSHALL"]);
    let next = joined("the waiter asks again", waiter)
        .await
        .expect("the lock is free");
    assert!(next.fence() > held.fence(), "the fence survives FLUSHALL");
    // This renewal by hand takes the place of the next one.
    lost(within("a verdict", held.extend(LONG)).await);
    lost_by_verdict(&held).await;
    assert!(!next.is_lost());

    server.cli(&["FLUSHALL"]);
    let third = take(&one, "orders", LONG).await;
    assert!(third.fence() > next.fence());
    assert!(next.release().await.is_err());
    assert!(!is_free(&server, "orders") && queued(&server, "orders") == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_of_an_emptied_server_is_told_by_its_renewal() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.client().await;
    let held = take(&client, "orders", LONG).await;
    server.cli(&["FLUSHALL"]);
    timed.pass(LONG / 2);
    let lost = lost_by_verdict(&held).await;
    assert!(lost.to_string().contains("lost its data"), "{lost}");
    eventually(PLENTY, "nothing takes it again", || {
        is_free(server, "orders")
    });
}

#[tokio::test]
async fn the_admit_script_lets_no_fence_below_the_highest_pass() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let (first, second) = {
        let lease = take(&client, "stock", LONG).await;
        let first = lease.fence();
        lease.release().await.expect("held");
        (first, take(&client, "stock", LONG).await.fence())
    };
    let admit = |fence: Fence| {
        let fence = fence.to_string();
        server
            .cli(&["EVAL", gate::ADMIT_SCRIPT, "1", "stock:fence", &fence])
            .int()
    };
    assert_eq!(admit(first), 1, "the first holder reads");
    assert_eq!(admit(first), 1, "and writes");
    assert_eq!(admit(second), 1, "the next one reads");
    assert_eq!(admit(first), 0, "the first one's late write");
    assert_eq!(admit(second), 1, "the next one writes");
    assert_eq!(
        server.cli(&["GET", "stock:fence"]).text(),
        second.to_string()
    );
    assert_eq!(server.cli(&["TTL", "stock:fence"]).int(), -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_loads_its_data_it_is_only_unavailable() {
    let server = RedisServer::builder()
        .option("appendonly", "yes")
        .option("appendfsync", "always")
        .start();
    let client = connect(&server.url()).await;
    let held = take(&client, "orders", LONG).await;
    let fence = held.fence();
    server.restart();
    within("it is renewed", async {
        while let Err(error) = held.extend(LONG).await {
            store_error::<()>(Err(error));
        }
    })
    .await;
    assert!(
        !held.is_lost() && held.fence() == fence,
        "a log keeps the lock"
    );
    held.release().await.expect("held");
}

//! A server that is stopped (SIGSTOP). It keeps its connections, sends no reply, and later executes every request.

use futures_util::future::join_all;
use leasehold::{LossCause, StoreErrorKind};
use testkit::{RedisServer, eventually};

use crate::scene::{
    LONG, PLENTY, Stalls, beside, connect, is_free, joined, lost_by_deadline, millis, now,
    queue_up, queued, store_error, take, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_loss_by_deadline_and_waiters_go_on_in_order() {
    let server = RedisServer::start();
    let holders = [connect(&server.url()).await, connect(&server.url()).await];
    let waiters = [connect(&server.url()).await, connect(&server.url()).await];

    let mut stories = Vec::new();
    for (number, ttl) in [600, 750, 900, 1200, 1600, 2000].into_iter().enumerate() {
        let name = format!("held-for-{ttl}");
        // Every third lease has no renewals: only the watch over its deadline can report the loss.
        let lock = holders[number % 2].mutex(&name).ttl(LONG);
        let lock = lock.auto_renew(number % 3 != 2);
        let lease = within("an answer", lock.acquire()).await.expect("free");
        // Each lock has a waiter, and the first lock has two, one of each waiting client.
        let mut line = vec![queue_up(&server, &waiters[number % 2], &name, LONG)];
        if number == 0 {
            line.push(queue_up(&server, &waiters[1], &name, LONG));
        }
        stories.push((name, millis(ttl), lease, line));
    }
    // Shortens the TTLs only after all waiters are in the queue, which may take a while. A request may take a third of the TTL.
    let shorter = stories.iter().map(|(_, ttl, lease, _)| lease.extend(*ttl));
    for extended in join_all(shorter).await {
        extended.expect("held");
    }
    assert!(stories.iter().all(|(_, _, lease, _)| !lease.is_lost()));
    let stalls = Stalls::watch();
    server.pause();

    let told = stories.into_iter().map(|(name, _, lease, line)| {
        let told = beside(async move {
            let (lost, late) = lost_by_deadline(&lease).await;
            (lease, lost, late)
        });
        (name, told, line)
    });
    let mut ended = Vec::new();
    for (name, told, line) in told.collect::<Vec<_>>() {
        let (lease, lost, late) = joined("the holder is told", told).await;
        stalls.told_on_time(&lost, late);
        ended.push((name, lease, line));
    }
    server.resume();

    for (name, lease, line) in ended {
        let mut free_since = lease.valid_until();
        let mut fence = lease.fence();
        for waiter in line {
            let next = joined("a waiter's turn", waiter)
                .await
                .expect("it survived the outage");
            assert!(now() > free_since, "{name} was granted while it was held");
            assert!(next.fence() > fence, "{name}: the fence rises");
            (fence, free_since) = (next.fence(), now());
            next.release()
                .await
                .expect("the next holder's lease is good");
        }
        let late_release = lease.release().await;
        assert!(
            matches!(late_release, Err(leasehold::Error::Lost(_))),
            "{late_release:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_out_of_time_in_outage_is_not_told_busy() {
    let server = RedisServer::start();
    let (holder, client) = (connect(&server.url()).await, connect(&server.url()).await);
    // With the short TTL, requests have failed before the time limit. With the long one, the first request is still unanswered.
    for ttl in [millis(600), LONG] {
        let lease = take(&holder, "orders", LONG).await;
        let lock = client.mutex("orders").ttl(ttl);
        let waiter = beside(async move { lock.acquire_within(millis(2000)).await });
        eventually(PLENTY, "it is in line", || queued(&server, "orders") == 1);
        server.pause();
        let error = store_error(joined("the end of the time limit", waiter).await);
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "TTL {ttl:?}: {error}");
        server.resume();
        eventually(PLENTY, "it left the line", || {
            queued(&server, "orders") == 0
        });
        assert!(!lease.is_lost());
        within("the release", lease.release())
            .await
            .expect("held all the time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_carried_out_after_the_outage_is_undone() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    // The server knows the script from now on, so it executes the requests in its buffers later.
    let before = take(&client, "orders", LONG).await;
    let fence = before.fence();
    before.release().await.expect("held");
    for ttl in [millis(3000), LONG] {
        server.pause();
        let error =
            store_error(within("a verdict", client.mutex("orders").ttl(ttl).try_acquire()).await);
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
        let resumed = now();
        server.resume();
        let last_fence = || {
            server
                .cli(&["GET", "leasehold:fence"])
                .int()
                .cast_unsigned()
        };
        eventually(PLENTY, "the late request was carried out", || {
            last_fence() > fence.get()
        });
        eventually(PLENTY, "it was undone", || is_free(&server, "orders"));
        let undone = now().since(resumed);
        println!("TTL {ttl:?}: undone {undone:?} after the server went on");
        assert!(undone < millis(1500), "{undone:?}");
        // The server has answered every request by now, so the lock stays free.
        let next = connect(&server.url()).await;
        let lease = take(&next, "orders", LONG).await;
        let again = client.mutex("orders").try_acquire().await;
        assert!(matches!(again, Ok(None)), "{again:?}");
        lease.release().await.expect("nobody took it away");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_that_outlasts_outage_is_doubtful_then_held_again() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lease = take(&client, "orders", LONG).await;
    server.pause();
    let error = store_error(within("a verdict", lease.extend(LONG)).await);
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
    assert!(error.may_have_taken_effect && lease.is_doubtful() && !lease.is_lost());
    server.resume();
    eventually(PLENTY, "it is renewed", || !lease.is_doubtful());
    assert!(
        lease
            .loss()
            .is_none_or(|lost| lost.cause == LossCause::Closed)
    );
    lease.release().await.expect("held all the time");
}

/// The server stops for longer than the client tries to undo its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_carries_out_when_nobody_tries_any_more_is_undone() {
    // The server's clock stands still, so no lease ends by itself.
    let server = RedisServer::builder().virtual_clock().start();
    let client = connect(&server.url()).await;
    // After this, the server knows the script.
    let other = take(&client, "y", LONG).await;
    other.release().await.expect("held");
    let fence = || server.cli(&["GET", "leasehold:fence"]).text();
    let before = fence();
    server.pause();
    let lock = client.mutex("x").ttl(millis(300));
    store_error(within("a verdict", lock.try_acquire()).await);
    // No event shows that the client gives up. It does so a second after the TTL.
    tokio::time::sleep(millis(3000)).await;
    server.resume();
    eventually(PLENTY, "the request is carried out", || fence() != before);
    eventually(PLENTY, "and undone", || is_free(&server, "x"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_there_and_close_ends_while_server_is_stopped() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let (lease, left) = (
        take(&client, "invoices", LONG).await,
        take(&client, "stock", LONG).await,
    );
    let work = async |_: &leasehold::Lease| {
        server.pause();
        "invoice 42"
    };
    let ran = within("a verdict", lease.run(work)).await.expect("held");
    assert_eq!(ran.output, "invoice 42");
    let error = store_error(ran.released);
    assert!(error.kind == StoreErrorKind::TimedOut && error.may_have_taken_effect);

    let closing = client.clone();
    let closed = joined("closing", beside(async move { closing.close().await })).await;
    assert!(!closed, "nothing was confirmed");
    assert_eq!(left.loss().map(|lost| lost.cause), Some(LossCause::Closed));
    server.resume();
    assert!(within("closing", client.close_within(PLENTY)).await);
    assert!(is_free(&server, "invoices") && is_free(&server, "stock"));
}

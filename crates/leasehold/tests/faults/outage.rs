//! A server that is stopped (SIGSTOP). It keeps its connections, sends no reply, and later executes every request.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{LossCause, StoreErrorKind};
use testkit::eventually;

use crate::common::lost;
use crate::scene::{
    LONG, PLENTY, Timed, beside, is_free, millis, queue_up, queued, store_error, take, within,
};

/// The limit of a request for a TTL of [`LONG`].
const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_loss_by_deadline_and_waiters_go_on_in_order() {
    let timed = Timed::start();
    let server = &*timed.server;
    let holders = [timed.client().await, timed.client().await];
    let waiters = [timed.client().await, timed.client().await];

    let mut stories = Vec::new();
    // The server may renew a lease when it goes on, so a waiter may wait for that long once more.
    for (number, ttl) in [6, 7, 8, 9, 10, 12].into_iter().enumerate() {
        let name = format!("held-for-{ttl}");
        // Every third lease has no renewals: only the watch over its deadline can report the loss.
        let lock = holders[number % 2].mutex(&name).ttl(LONG);
        let lock = lock.auto_renew(number % 3 != 2);
        let lease = within("an answer", lock.acquire()).await.expect("free");
        // Each lock has a waiter, and the first lock has two, one of each waiting client.
        let mut line = vec![queue_up(server, &waiters[number % 2], &name, LONG)];
        if number == 0 {
            line.push(queue_up(server, &waiters[1], &name, LONG));
        }
        stories.push((name, Duration::from_secs(ttl), lease, line));
    }
    // Shortens the TTLs only after all waiters are in the queue.
    let shorter = stories.iter().map(|(_, ttl, lease, _)| lease.extend(*ttl));
    for extended in join_all(shorter).await {
        extended.expect("held");
    }
    server.pause();
    for (_, _, lease, _) in &stories {
        timed.lost_at_deadline(lease).await;
    }
    server.resume();

    for (name, _, lease, line) in stories {
        let mut free_since = lease.valid_until();
        let mut fence = lease.fence();
        for waiter in line {
            let next = timed.joined("a waiter's turn", waiter).await;
            let next = next.expect("it survived the outage");
            let now = timed.clock.now();
            assert!(now >= free_since, "{name} was granted while it was held");
            assert!(next.fence() > fence, "{name}: the fence rises");
            (fence, free_since) = (next.fence(), now);
            timed
                .passing("a release", next.release())
                .await
                .expect("the next holder's lease is good");
        }
        lost(timed.passing("a release", lease.release()).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_out_of_time_in_outage_is_not_told_busy() {
    let timed = Timed::start();
    let server = &*timed.server;
    let (holder, client) = (timed.client().await, timed.client().await);
    // With the shorter TTL, requests have failed before the time limit. With the longer one, the first request is still unanswered.
    for ttl in [LONG / 5, LONG] {
        let lease = take(&holder, "orders", LONG).await;
        let lock = client.mutex("orders").ttl(ttl);
        let waiter = beside(async move { lock.acquire_within(millis(8000)).await });
        eventually(PLENTY, "it is in line", || queued(server, "orders") == 1);
        server.pause();
        for _ in 0..8 {
            timed.pass(millis(1000));
            tokio::time::sleep(millis(10)).await;
        }
        let error = store_error(timed.joined("the end of the time limit", waiter).await);
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "TTL {ttl:?}: {error}");
        server.resume();
        timed
            .eventually("it left the line", || queued(server, "orders") == 0)
            .await;
        assert!(!lease.is_lost());
        timed
            .passing("the release", lease.release())
            .await
            .expect("held all the time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_carried_out_after_the_outage_is_undone() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.proxied().await;
    // The server knows the script from now on, so it executes the requests in its buffers later.
    let before = take(&client, "orders", LONG).await;
    let fence = before.fence();
    before.release().await.expect("held");
    for ttl in [LONG, LONG * 2] {
        server.pause();
        let lock = client.mutex("orders").ttl(ttl);
        let error = store_error(timed.gives_up(ttl / 3, lock.try_acquire()).await);
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
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
        // Long before its lease would end by itself.
        timed
            .eventually("it was undone", || is_free(server, "orders"))
            .await;
        // The server has answered every request by now, so the lock stays free.
        let next = timed.client().await;
        let lease = take(&next, "orders", LONG).await;
        let again = timed.passing("an answer", lock.try_acquire()).await;
        assert!(matches!(again, Ok(None)), "{again:?}");
        lease.release().await.expect("nobody took it away");
    }
}

/// The server stops for longer than the client tries to undo its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_carries_out_when_nobody_tries_any_more_is_undone() {
    // The server's clock stands still, so no lease ends by itself. Only the clock of the client moves.
    let timed = Timed::start();
    let standing = timed.server.clock().now();
    let client = timed.proxied().await;
    // After this, the server knows the script.
    let other = take(&client, "y", LONG).await;
    other.release().await.expect("held");
    let server = &*timed.server;
    let fence = || server.cli(&["GET", "leasehold:fence"]).text();
    let before = fence();
    server.pause();
    let lock = client.mutex("x").ttl(LONG);
    store_error(timed.gives_up(LIMIT, lock.try_acquire()).await);
    // No event shows that the client gives up. It does so a second after the TTL.
    for _ in 0..50 {
        timed.pass(LONG / 20);
        tokio::time::sleep(millis(20)).await;
    }
    server.clock().set(standing);
    server.resume();
    timed
        .eventually("it is carried out", || fence() != before)
        .await;
    timed
        .eventually("it is undone", || is_free(server, "x"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_there_and_close_ends_while_server_is_stopped() {
    let timed = Timed::start();
    let server = &*timed.server;
    let client = timed.proxied().await;
    let (lease, left) = (
        take(&client, "invoices", LONG).await,
        take(&client, "stock", LONG * 4).await,
    );
    let work = async |_: &leasehold::Lease| {
        server.pause();
        Ok::<_, leasehold::Error>("invoice 42")
    };
    let ran = timed.beyond(PLENTY, lease.run(work)).await;
    assert_eq!(ran.expect("it was held"), "invoice 42");

    let closing = client.clone();
    let closing = beside(async move { closing.close().await });
    eventually(PLENTY, "closing ends", || {
        timed.pass(millis(100));
        closing.is_finished()
    });
    let closed = closing.await.expect("no panic");
    assert!(!closed, "nothing was confirmed");
    assert_eq!(left.loss().map(|lost| lost.cause), Some(LossCause::Closed));
    server.resume();
    let closed = timed.passing("closing", client.close_within(PLENTY)).await;
    assert!(closed);
    assert!(is_free(server, "invoices") && is_free(server, "stock"));
}

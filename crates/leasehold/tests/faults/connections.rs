//! The test cuts connections and deletes scripts at any moment, while the server lives.

use std::sync::Arc;

use leasehold::Error;
use testkit::{RedisServer, eventually};

use crate::common::lost;
use crate::scene::{
    LONG, Nemesis, PLENTY, Timed, beside, connect, has_its_turn, is_free, joined, kill_connections,
    kill_until_connected, millis, queue_up, queued, take, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_forgets_every_script_between_all_calls() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let forget = || assert_eq!(server.cli(&["SCRIPT", "FLUSH"]).text(), "OK");
    for _ in 0..5 {
        forget();
        let lease = take(&one, "orders", LONG).await;
        forget();
        lease.extend(LONG).await.expect("renewed");
        forget();
        assert!(
            two.mutex("orders")
                .try_acquire()
                .await
                .expect("an answer")
                .is_none()
        );
        forget();
        let seen = one.inspect("orders").await.expect("an answer");
        let holder = seen.holder.expect("held");
        assert_eq!(holder.fence, Some(lease.fence()));
        forget();
        let waiter = queue_up(&server, &two, "orders", LONG);
        forget();
        lease.release().await.expect("held");
        forget();
        let next = joined("the waiter's turn", waiter).await.expect("granted");
        forget();
        assert!(
            two.break_lock("orders", next.fence())
                .await
                .expect("an answer")
        );
        forget();
        lost(next.release().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_with_repeatedly_killed_connections_keeps_lock() {
    let timed = Timed::start();
    let client = timed.client().await;
    let lease = take(&client, "orders", LONG).await;
    let nemesis = Nemesis::start(&timed.server, millis(20), kill_until_connected);
    let renewals = async {
        while nemesis.strikes() < 20 {
            timed.outlives_its_ttl(&lease).await;
        }
    };
    renewals.await;
    timed.passing("its end", nemesis.end()).await;
    assert_eq!(lease.loss().map(|lost| lost.to_string()), None);
    let renewed = async { while lease.extend(LONG).await.is_err() {} };
    timed.passing("it is renewed", renewed).await;
    lease.release().await.expect("held all the time");
}

/// The test kills connections just before the release, or just after it. Once both are connected again, the clock stands still, so the
/// waiter does not poll: it asks again because it is connected again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_missed_its_wake_asks_after_it_reconnects() {
    let timed = Timed::start();
    let server = &*timed.server;
    let (one, two) = (timed.client().await, timed.client().await);
    for round in 0..12 {
        let lease = take(&one, "orders", LONG).await;
        let waiter = queue_up(server, &two, "orders", LONG);
        if round % 2 == 0 {
            kill_connections(server);
        }
        let released = beside(async move { lease.release().await });
        if round % 2 == 1 {
            kill_connections(server);
        }
        timed
            .joined("the release", released)
            .await
            .expect("confirmed");
        let listening = || {
            let list = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            list.text().lines().count()
        };
        timed
            .eventually("both listen again", || listening() == 2)
            .await;
        has_its_turn(waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_cut_off_half_way_is_never_busy_with_itself() {
    let server = Arc::new(RedisServer::start());
    let client = connect(&server.url()).await;
    // The pause lets the client use a new connection before the test kills it.
    let nemesis = Nemesis::start(&server, millis(1), kill_until_connected);
    let (mut held, mut failed) = (0, 0);
    let mut last = None;
    for round in 0..90 {
        let name = format!("round {round}");
        match within("a verdict", client.mutex(&name).ttl(LONG).try_acquire()).await {
            Ok(Some(lease)) => {
                held += 1;
                assert!(last.is_none_or(|last| last < lease.fence()));
                last = Some(lease.fence());
                // Connections also die during this release, so it may get no verdict.
                drop(lease);
            }
            Ok(None) => panic!("{name} is busy, and only this client ever asked for it"),
            Err(Error::Store(_)) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    let strikes = nemesis.end().await;
    println!("{held} held, {failed} without a verdict, connections killed {strikes} times");
    eventually(PLENTY, "nothing is left behind", || {
        (0..90).all(|round| is_free(&server, &format!("round {round}")))
    });
    assert!(held > 45, "{held} held, {failed} failed");
    assert_eq!(queued(&server, "round 0"), 0);
}

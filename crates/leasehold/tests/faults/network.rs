//! A network that loses replies, holds all data back, or cuts connections. The server itself works.

use std::time::Duration;

use leasehold::{Client, StoreErrorKind};
use testkit::{FaultProxy, RedisServer, eventually};

use crate::common::lost;
use crate::scene::{
    LONG, PLENTY, Timed, beside, connect, has_its_turn, is_free, joined, millis, now, queue_up,
    queued, store_error, take, within,
};

/// The limit of a request for a TTL of [`LONG`].
const LIMIT: Duration = Duration::from_secs(10);

/// A server, a proxy before it, a client behind the proxy, and a client with a direct connection.
async fn scene() -> (RedisServer, FaultProxy, Client, Client) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let other = connect(&server.url()).await;
    warm_up(&client).await;
    (server, proxy, client, other)
}

/// The parts of [`scene`], with one clock.
async fn timed_scene() -> (Timed, Client, Client) {
    let timed = Timed::start();
    let client = timed.proxied().await;
    let other = timed.client().await;
    warm_up(&client).await;
    (timed, client, other)
}

/// The server knows the scripts from now on, so one request is one command.
async fn warm_up(client: &Client) {
    let lease = take(client, "warm", LONG).await;
    lease.extend(LONG).await.expect("held");
    lease.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_lost_acquire_reply_finds_same_lease() {
    let (server, proxy, client, other) = scene().await;
    for (name, wait) in [("asked once", false), ("waited for", true)] {
        let lock = client.mutex(name).ttl(LONG);
        proxy.swallow_replies(true);
        let acquiring = beside(async move {
            if wait {
                lock.acquire().await.map(Some)
            } else {
                lock.try_acquire().await
            }
        });
        eventually(PLENTY, "it is carried out", || !is_free(&server, name));
        let token = server.cli(&["GET", name]).text();
        proxy.cut_and_answer();
        let lease = joined("the retry", acquiring)
            .await
            .expect("the store answers")
            .expect("not busy with itself");
        assert_eq!(lease.token(), token, "one acquisition, one fence");
        let busy = other.mutex(name).try_acquire().await.expect("an answer");
        assert!(busy.is_none());
        lease.release().await.expect("held");
        assert!(is_free(&server, name));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_renewal_is_lost_and_the_lease_is_still_held() {
    let (server, proxy, client, _other) = scene().await;
    let lease = take(&client, "orders", LONG).await;
    proxy.swallow_replies(true);
    let extending = lease.extend(Duration::from_secs(60));
    // The test checks the effect on the server. A lost reply proves nothing, since the client also adds the name to the index.
    let losing = || {
        let is_extended = || server.cli(&["PTTL", "orders"]).int() > 30_000;
        eventually(PLENTY, "it is carried out", is_extended);
        proxy.cut_and_answer();
    };
    // A bare block of the runtime would make the connection move to another thread, and the reply to its new handshake would be lost.
    let losing = async { tokio::task::block_in_place(losing) };
    let (extended, ()) = within("a verdict", async { tokio::join!(extending, losing) }).await;
    let error = store_error(extended);
    assert!(error.may_have_taken_effect, "{error}");
    eventually(PLENTY, "it is renewed", || {
        !lease.is_doubtful() && lease.valid_for() > LONG
    });
    lease.release().await.expect("held all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_release_is_lost_and_the_release_has_worked() {
    let (server, proxy, client, other) = scene().await;
    let lease = take(&client, "orders", LONG).await;
    let waiter = queue_up(&server, &other, "orders", LONG);
    // By this reply, the client knows that another client waits. Otherwise the client may first send the short form of the release, with
    // *contended* as its only reply. That reply would be lost here, and the store would release nothing until the next request.
    lease.extend(LONG).await.expect("held");
    proxy.swallow_replies(true);
    let releasing = beside(async move { lease.release().await });
    let next = joined("the waiter's turn", waiter).await.expect("released");
    proxy.cut_and_answer();
    let verdict = joined("the retry", releasing).await;
    assert!(verdict.is_ok(), "{verdict:?}");
    assert!(!next.is_lost(), "the retry hit nobody else");
    next.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_shorter_than_the_lease_costs_nothing() {
    let (timed, client, _other) = timed_scene().await;
    let proxy = &timed.proxy;
    let leases = [
        take(&client, "orders", LONG).await,
        take(&client, "stock", LONG).await,
    ];
    let accepted = proxy.accepted();
    proxy.blackhole(true);
    let both = async { tokio::join!(leases[0].extend(LONG), leases[1].extend(LONG)) };
    let (first, second) = timed.beyond(LIMIT, both).await;
    for error in [first, second] {
        let error = store_error(error);
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
    }
    assert!(
        leases
            .iter()
            .all(|lease| lease.is_doubtful() && !lease.is_lost())
    );
    // The old connection is given up.
    timed
        .eventually("a new connection", || proxy.accepted() > accepted)
        .await;
    proxy.blackhole(false);
    timed
        .eventually("they are renewed", || {
            leases.iter().all(|lease| !lease.is_doubtful())
        })
        .await;
    assert!(leases.iter().all(|lease| !lease.is_lost()));
    for lease in leases {
        let released = timed.passing("a release", lease.release()).await;
        released.expect("held all the time");
    }
    assert!(is_free(&timed.server, "orders") && is_free(&timed.server, "stock"));
}

/// As a router does after minutes without traffic. New connections work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_dropped_in_silence_costs_one_request() {
    let (timed, client, other) = timed_scene().await;
    let lease = take(&client, "orders", LONG).await;
    timed.proxy.strand();
    let extended = timed.beyond(LIMIT, lease.extend(LONG)).await;
    let error = store_error(extended);
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
    timed
        .eventually("it is renewed", || !lease.is_doubtful())
        .await;
    lease.release().await.expect("held all the time");

    let lease = take(&other, "orders", LONG).await;
    let waiter = queue_up(&timed.server, &client, "orders", LONG);
    timed.proxy.strand();
    lease.release().await.expect("held");
    let accepted = timed.proxy.accepted();
    // It polls, the limit of that request passes, and that of PING. Further back in line, the poll may come 15 s later.
    let dropped = timed.clock.now();
    let noticing = async {
        while timed.proxy.accepted() == accepted {
            tokio::time::sleep(millis(10)).await;
            timed.pass(millis(100));
        }
    };
    within("a new connection", noticing).await;
    let noticed = timed.clock.now().since(dropped);
    let most = Duration::from_secs(30);
    assert!(noticed > LIMIT && noticed < most, "{noticed:?}");
    timed.has_its_turn(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_longer_than_the_lease_ends_it_on_time() {
    let (timed, client, other) = timed_scene().await;
    let proxy = &timed.proxy;
    let lease = take(&client, "orders", LONG).await;
    let waiter = queue_up(&timed.server, &other, "orders", LONG);
    proxy.blackhole(true);
    timed.lost_at_deadline(&lease).await;
    let next = timed.joined("the waiter's turn", waiter).await;
    let next = next.expect("expired");
    proxy.blackhole(false);
    lost(timed.passing("a verdict", lease.release()).await);
    assert!(!next.is_lost());
    let extended = timed.passing("a verdict", next.extend(LONG)).await;
    extended.expect("nobody took it away");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_a_black_hole_keeps_or_regains_its_turn() {
    let (server, proxy, client, other) = scene().await;
    let lease = take(&other, "orders", LONG).await;
    let waiter = queue_up(&server, &client, "orders", LONG);
    proxy.blackhole(true);
    lease.release().await.expect("held");
    // The store grants the lock to a waiter that does not hear of it. The claim window keeps the lock from others only for a while.
    assert!(!waiter.is_finished());
    proxy.blackhole(false);
    has_its_turn(waiter).await;
    assert!(is_free(&server, "orders") && queued(&server, "orders") == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_makes_leases_shorter_and_not_wrong() {
    let (server, proxy, client, _other) = scene().await;
    proxy.delay(millis(100));
    let lease = take(&client, "orders", LONG).await;
    let known = now();
    // The lease counts from its request, at least 200 ms before the reply. So the rest is the TTL less 1 % and 2 ms, less 200 ms.
    let left = lease.valid_until().since(known);
    assert!(left <= millis(29_698 - 200), "{left:?}");
    proxy.delay(Duration::ZERO);
    lease.release().await.expect("held");
    assert!(is_free(&server, "orders"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_refuses_is_tried_again_until_it_does_not() {
    let (server, proxy, client, _other) = scene().await;
    let lease = take(&client, "orders", LONG).await;
    proxy.refuse(true);
    proxy.cut();
    let error = store_error(within("a verdict", client.mutex("other").try_acquire()).await);
    let host = format!("127.0.0.1:{}", proxy.port());
    assert!(error.to_string().contains(&host), "{error}");
    proxy.refuse(false);
    within("it is back", async {
        while lease.extend(LONG).await.is_err() {}
    })
    .await;
    lease.release().await.expect("held all the time");
    eventually(PLENTY, "nothing is left", || is_free(&server, "other"));
}

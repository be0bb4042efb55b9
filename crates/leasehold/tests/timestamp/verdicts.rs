//! The results when the store refuses, sends no reply, or replies late.

use std::thread;
use std::time::Duration;

use leasehold::timestamp::Unit;
use leasehold::{Clock, Error, LossCause, Replaced, StoreErrorKind};
use testkit::{FaultProxy, RedisServer, block_on, eventually};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::common::{self, lost, store_error, timed};
use crate::{
    LONG, TTL, UNITS, connect, connect_in_test_time, frozen, proxied_scene, scene, scripts_run,
    take, value,
};

/// Makes the server refuse writes, or accept them again.
fn refuse_writes(server: &RedisServer, refuse: bool) {
    let replicas = if refuse { "1" } else { "0" };
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
}

#[tokio::test]
async fn t9_what_is_over_is_not_taken_again_for_nobody() {
    let server = frozen();
    let clock = Clock::virtual_time();
    let builder = timed(&clock);
    let client = builder.connect(&server.url()).await.unwrap();
    let lock = client.timestamp_lock("k").ttl(TTL).auto_renew(false);
    let hold = take(&lock).await;
    let written = value(&server, "k");
    // This host sleeps past the deadline, and no timer has noticed it before the extension. By the server's clock, a second is left, as
    // always.
    clock.suspend(TTL);
    server.clock().advance(TTL);
    lost(hold.extend(2 * TTL).await);
    // The client sends no request later either.
    client.close().await;
    assert_eq!(value(&server, "k"), written);
}

/// A busy machine may stop the thread of the connection for a while. The client does not give the request up, since its outcome would be
/// unknown.
#[tokio::test]
async fn a_runtime_that_is_held_up_for_a_moment_costs_no_verdict() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let held_up = async { thread::sleep(Duration::from_millis(300)) };
    let (taken, ()) = tokio::join!(lock.try_acquire(), held_up);
    let hold = taken.unwrap().expect("it is free");
    let held_up = async { thread::sleep(Duration::from_millis(300)) };
    let (released, ()) = tokio::join!(hold.release(), held_up);
    released.unwrap();
    assert!(value(&server, "k").is_none(), "it is free");
}

/// A timestamp step is not safe to repeat. It runs on the client's own thread, so a blocked runtime cannot lose its reply.
#[test]
fn a_hold_outlives_a_blocked_runtime_beside_an_acquisition() {
    let server = frozen();
    let blocked = Builder::new_current_thread().enable_all().build().unwrap();
    let url = server.url();
    let (time, client) = blocked.block_on(connect_in_test_time(&server, &url));
    let lock = client.timestamp_lock("k").unit(Unit::Millis).ttl(TTL);
    let hold = blocked.block_on(take(&lock));
    let another = client.timestamp_lock("another").ttl(TTL);
    let acquiring = thread::spawn(move || block_on(another.try_acquire()).map(drop));
    // Nothing runs on the runtime meanwhile.
    for _ in 0..6 {
        let before = hold.valid_until();
        time.pass(TTL / 3);
        eventually(LONG, "it is renewed", || hold.valid_until() > before);
        assert!(!hold.is_lost(), "{:?}", hold.loss());
    }
    acquiring.join().unwrap().expect("its outcome is known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t9_an_extension_that_was_carried_out_too_late_is_given_back() {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let clock = Clock::manual();
    let client = timed(&clock).connect(&proxy.url()).await.unwrap();
    let lock = client.timestamp_lock("k").ttl(TTL).auto_renew(false);
    let hold = take(&lock).await;
    proxy.hold_at("EVALSHA");
    let deadline_passes = async {
        common::eventually("it is sent", async || proxy.is_holding()).await;
        // By the server's clock, which stands still, the request is in time.
        clock.advance(hold.valid_for());
    };
    let (refused, ()) = tokio::join!(hold.extend(2 * TTL), deadline_passes);
    let lost = lost(refused);
    assert_eq!(lost.cause, LossCause::Deadline(None));
    assert!(value(&server, "k").is_some());
    proxy.go_on();
    eventually(LONG, "it is free", || value(&server, "k").is_none());
}

#[tokio::test]
async fn t5_renewal_in_millis_may_take_longer_than_the_one_before() {
    let (server, proxy, time, client) = proxied_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL).unit(Unit::Millis);
    let hold = take(&lock).await;
    hold.extend(TTL).await.unwrap();
    for late in [150, 20, 400] {
        let before = scripts_run(&server);
        proxy.hold_at("EVALSHA");
        let arrives_late = async {
            common::eventually("it is sent", async || proxy.is_holding()).await;
            time.pass(Duration::from_millis(late));
            proxy.go_on();
        };
        let (extended, ()) = tokio::join!(hold.extend(TTL), arrives_late);
        extended.unwrap();
        assert_eq!(scripts_run(&server) - before, 1, "{late} ms");
    }
    hold.release().await.unwrap();
}

#[tokio::test]
async fn a_refused_extension_changes_nothing() {
    let (server, client) = scene().await;
    let hold = take(&client.timestamp_lock("k").ttl(TTL).auto_renew(false)).await;
    let (until, written) = (hold.valid_until(), value(&server, "k"));
    refuse_writes(&server, true);
    let error = store_error(hold.extend(TTL / 10).await);
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_taken_effect && hold.doubt().is_some());
    assert_eq!((hold.valid_until(), value(&server, "k")), (until, written));
    refuse_writes(&server, false);
    hold.release().await.unwrap();
}

#[tokio::test]
async fn who_never_heard_that_it_is_busy_is_told_why() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    refuse_writes(&server, true);
    let error = store_error(lock.acquire_within(Duration::from_millis(200)).await);
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    // The error is transient: a waiter with a longer limit gets the lock.
    let waiting = tokio::spawn(async move { lock.acquire_within(LONG).await });
    let before = scripts_run(&server);
    common::eventually("it asks again", async || scripts_run(&server) > before + 1).await;
    refuse_writes(&server, false);
    let hold = waiting.await.unwrap().unwrap();
    hold.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_server_is_left() {
    for by_script in [true, false] {
        let server = RedisServer::start();
        // The client may not ask the server for its role, so only the refusal shows the change.
        let user = ["ACL", "SETUSER", "default", "-role"];
        assert_eq!(server.cli(&user).text(), "OK");
        let proxy = FaultProxy::start(server.port());
        let client = connect(&proxy.url()).await;
        let lock = client.timestamp_lock("k").ttl(TTL);
        let lock = if by_script {
            lock
        } else {
            lock.without_scripts()
        };
        take(&lock).await.release().await.unwrap();
        let before = proxy.accepted();
        server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        let refused = lock.try_acquire().await;
        assert!(
            matches!(&refused, Err(Error::Store(error)) if error.kind == StoreErrorKind::ReadOnly),
            "{refused:?}"
        );
        eventually(LONG, "it dials again", || proxy.accepted() > before);
        server.cli(&["REPLICAOF", "NO", "ONE"]);
        let hold = lock.acquire_within(LONG).await.unwrap();
        hold.release().await.unwrap();
    }
}

#[tokio::test]
async fn t5_a_server_whose_clock_runs_away_says_so() {
    let (server, proxy, _, client) = proxied_scene().await;
    for unit in UNITS {
        let hold = take(&client.timestamp_lock("k").ttl(TTL).unit(unit)).await;
        hold.extend(TTL).await.unwrap();
        // The server's clock jumps five seconds for each request.
        let jump = || server.clock().advance(Duration::from_secs(5));
        jump();
        proxy.hold_after("EVALSHA");
        let jumping = async {
            common::eventually("it is asked again", async || proxy.is_holding()).await;
            jump();
            proxy.go_on();
        };
        let (refused, ()) = tokio::join!(hold.extend(TTL), jumping);
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("its clock moved by more than half"), "{said}");
        hold.extend(TTL).await.unwrap();
        hold.release().await.unwrap();
    }
}

/// Another server answers a client that has only timestamp locks. The client doubts them, checks them at once, and reports a loss with its
/// reason: their first renewals are later than any test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_data_is_asked_at_once() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lock = |name: &str| client.timestamp_lock(name).ttl(240 * TTL);
    let renewed = take(&lock("renewed")).await;
    let plain = take(
        &lock("plain")
            .unit(Unit::Millis)
            .without_scripts()
            .auto_renew(false),
    )
    .await;
    server.restart();
    for hold in [renewed, plain] {
        let lost = timeout(LONG, hold.lost()).await.expect("it is told");
        assert!(matches!(lost.cause, LossCause::NotHeld(_)), "{lost}");
        assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
        assert!(lost.to_string().contains("the server was replaced"));
    }
    // The new server granted this hold itself, so its loss has another reason.
    let again = take(&lock("renewed")).await;
    server.cli(&["DEL", "renewed"]);
    assert_eq!(lost(again.extend(TTL).await).replaced, None);
}

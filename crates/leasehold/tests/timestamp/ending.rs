//! The renewals of a hold, and every way in which it ends.

use std::time::Duration;

use leasehold::LossCause;
use leasehold::timestamp::Unit;
use testkit::{FaultProxy, eventually};
use tokio::time::timeout;

use crate::common::{invalid, lost, store_error};
use crate::recipe::Plain;
use crate::{
    LONG, TTL, UNITS, certain, connect, frozen, now, proxied_scene, scripts_run, take, timed_scene,
    value,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t6_a_hold_counts_from_before_it_was_asked_for() {
    let (_server, proxy, time, client) = proxied_scene().await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        take(&lock).await.release().await.unwrap();
        let late = Duration::from_secs(3);
        proxy.hold_at("EVALSHA");
        let asking = tokio::spawn(async move { take(&lock).await });
        eventually(LONG, "it is asked for", || proxy.is_holding());
        time.pass(late);
        proxy.go_on();
        let hold = asking.await.unwrap();
        assert_eq!(hold.valid_for() + late, certain(TTL));
        hold.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t9_a_hold_renews_itself_until_it_is_given_back() {
    let (server, time, client) = timed_scene().await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        let hold = take(&lock).await;
        // A TTL and two thirds of one: the hold outlives its first deadline.
        for _ in 0..5 {
            let before = (hold.valid_until(), hold.deadline());
            time.pass(TTL / 3);
            eventually(LONG, "it is renewed", || hold.valid_until() > before.0);
            assert_eq!(hold.valid_for(), certain(TTL));
            assert!(hold.deadline() > before.1 && !hold.is_lost());
            assert_eq!(value(&server, "k"), Some(hold.deadline().to_string()));
        }
        hold.release().await.unwrap();
        assert_eq!(value(&server, "k"), None);
        time.pass(TTL / 3);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(value(&server, "k"), None, "nothing renews it any more");
    }
}

#[tokio::test]
async fn t6_without_renewal_it_is_lost_at_its_deadline_unasked() {
    let (server, time, client) = timed_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL).auto_renew(false);
    let hold = take(&lock).await;
    let before = scripts_run(&server);
    // Nothing looks at the key.
    server.cli(&["DEL", "k"]);
    let moment = Duration::from_micros(1);
    time.pass(hold.valid_for().saturating_sub(moment));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!hold.is_lost());
    let (told, ()) = tokio::join!(timeout(LONG, hold.lost()), async { time.pass(moment) });
    let told = told.expect("its time passes");
    assert_eq!(told.cause, LossCause::Deadline(None));
    lost(hold.extend(TTL).await);
    lost(hold.release().await);
    assert_eq!(scripts_run(&server), before);
}

#[tokio::test]
async fn extending_by_hand_moves_the_deadline_both_ways() {
    let (server, _, client) = timed_scene().await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        let hold = take(&lock).await;
        let first = hold.deadline();
        for (ttl, later) in [(2 * TTL, true), (TTL / 2, false)] {
            hold.extend(ttl).await.unwrap();
            assert_eq!(hold.deadline() > first, later);
            assert_eq!(hold.valid_for(), certain(ttl));
            assert_eq!(value(&server, "k"), Some(hold.deadline().to_string()));
        }
        invalid(hold.extend(Duration::ZERO).await);
        hold.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_kept_ends_by_its_deadline() {
    let (server, _, client) = timed_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    take(&lock).await.release_after(TTL / 2).await.unwrap();
    client.close().await;
    let left = now(&server, Unit::Seconds) + 16;
    assert_eq!(value(&server, "k"), Some(left.to_string()));
}

#[tokio::test]
async fn t5_a_server_clock_that_jumps_is_followed() {
    let (server, _, client) = timed_scene().await;
    let hold = take(&client.timestamp_lock("k").ttl(TTL)).await;
    for jump in [20_i64, -15] {
        let to = server.clock().now().saturating_add_signed(jump * 1_000_000);
        server.clock().set(to);
        hold.extend(TTL).await.unwrap();
        assert_eq!(hold.deadline(), to / 1_000_000 + 31, "{jump}");
    }
    hold.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_goes_away_leaves_it_free() {
    let server = frozen();
    let proxy = FaultProxy::start(server.port());
    let client = connect(&proxy.url()).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let free = || value(&server, "k").is_none();

    drop(take(&lock).await);
    eventually(LONG, "a dropped hold is released", free);

    // The caller drops the future after the client has sent the request, and before the reply.
    proxy.hold_at("EVALSHA");
    let mut asking = Box::pin(lock.acquire());
    assert!(futures_util::poll!(&mut asking).is_pending());
    eventually(LONG, "the client has sent it", || proxy.is_holding());
    drop(asking);
    proxy.go_on();
    let hold = lock.acquire_within(LONG).await.expect("nobody hears of it");
    hold.release().await.unwrap();

    // The caller drops the future while the client waits.
    let mut theirs = Plain::new(&server, Unit::Seconds);
    let deadline = theirs.lock("k", 30).unwrap();
    assert!(
        timeout(Duration::from_millis(120), lock.acquire())
            .await
            .is_err()
    );
    theirs.unlock("k", deadline);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(free(), "nobody waits any more");

    let hold = take(&lock).await;
    client.close().await;
    assert!(free());
    assert_eq!(hold.loss().unwrap().cause, LossCause::Closed);
    store_error(lock.try_acquire().await);
}

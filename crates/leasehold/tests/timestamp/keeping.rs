//! Locks that stay taken for a while after their use (at-least time). They are never freed sooner, and this never makes the work a loss.

use std::time::Duration;

use leasehold::timestamp::Unit;
use testkit::{RedisServer, eventually};
use tokio::time::timeout;

use crate::common::{lost, passing, store_error};
use crate::{LONG, STEP, TTL, UNITS, now, pass_until, proxied_scene, scene, take, value};

fn deadline(server: &RedisServer) -> u64 {
    value(server, "k").expect("it is kept").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_rest_over_a_slow_link_is_no_loss() {
    let (server, proxy, time, client) = proxied_scene().await;
    let rest = Duration::from_millis(100);
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        // The request arrives within the rest, or after it.
        for late in [60, 95, 150, 1_500] {
            let hold = take(&lock).await;
            // The lock stays taken for at most the requested time, rounded up by the protocol.
            let most = now(&server, unit) + unit.whole(rest) + 1;
            proxy.hold_at("EVALSHA");
            let keeping = tokio::spawn(hold.release_after(rest));
            eventually(LONG, "it is asked for", || proxy.is_holding());
            time.pass(Duration::from_millis(late));
            proxy.go_on();
            // The client may have to ask again, after a pause.
            pass_until(&time, STEP, "an answer", || keeping.is_finished());
            keeping.await.unwrap().expect("no loss");
            let kept = value(&server, "k").map(|deadline| deadline.parse::<u64>().unwrap());
            assert!(
                kept.is_none_or(|deadline| deadline <= most),
                "{unit:?} {late}: {kept:?} {most}"
            );
            time.pass(rest + 3 * Duration::from_micros(unit.micros()));
            take(&lock).await.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_store_is_asked_again_and_lock_is_kept() {
    let (server, proxy, time, client) = proxied_scene().await;
    for unit in UNITS {
        let lock = client.timestamp_lock("k").ttl(TTL).unit(unit);
        let hold = take(&lock).await;
        let (before, dials) = (deadline(&server), proxy.accepted());
        let ends = now(&server, unit) + unit.whole(TTL / 3);
        proxy.hold_at("EVALSHA");
        let keeping = tokio::spawn(hold.release_after(TTL / 3));
        eventually(LONG, "it is asked for", || proxy.is_holding());
        proxy.refuse(true);
        proxy.cut();
        pass_until(&time, STEP, "it is tried", || proxy.accepted() > dials + 2);
        assert!(!keeping.is_finished());
        assert_eq!(deadline(&server), before);
        proxy.refuse(false);
        pass_until(&time, STEP, "it is kept", || keeping.is_finished());
        keeping.await.unwrap().unwrap();
        // Counted from the call, and not from the attempt.
        assert!((ends..=ends + 1).contains(&deadline(&server)), "{ends}");
        server.cli(&["DEL", "k"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_answer_is_lost_is_kept_and_not_freed() {
    let (server, proxy, time, client) = proxied_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    // The server knows the script from here on.
    hold.extend(TTL).await.unwrap();
    let before = deadline(&server);
    let ends = now(&server, Unit::Seconds) + Unit::Seconds.whole(TTL / 3) + 1;
    proxy.swallow_replies(true);
    // The caller stops waiting, and the request goes on.
    let keeping = hold.release_after(TTL / 3);
    let gone = timeout(Duration::from_millis(50), keeping).await;
    assert!(gone.is_err(), "{gone:?}");
    eventually(LONG, "it was carried out", || deadline(&server) < before);
    proxy.cut_and_answer();
    // A client that hears of the cut first asks once more, and pauses by this clock before it connects again.
    passing(&time, "it is closed", client.close()).await;
    assert!((ends..=ends + 1).contains(&deadline(&server)), "{ends}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_kept_is_left_to_the_deadline_that_it_has() {
    let (server, proxy, time, client) = proxied_scene().await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let hold = take(&lock).await;
    let (before, until) = (value(&server, "k"), hold.valid_for());
    proxy.hold_at("EVALSHA");
    let keeping = tokio::spawn(hold.release_after(TTL));
    eventually(LONG, "it is asked for", || proxy.is_holding());
    proxy.refuse(true);
    proxy.cut();
    let (step, mut passed) = (TTL / 100, Duration::ZERO);
    pass_until(&time, step, "its deadline", || {
        passed += step;
        keeping.is_finished()
    });
    // It gave up at the deadline, and not before.
    assert!(passed >= until, "{passed:?}");
    let kept = keeping.await.unwrap();
    // This is no loss, since the client held the lock during the work.
    store_error(kept);
    proxy.refuse(false);
    client.close().await;
    assert_eq!(value(&server, "k"), before);
}

#[tokio::test]
async fn what_was_lost_cannot_be_kept() {
    let (server, client) = scene().await;
    let hold = take(&client.timestamp_lock("k").ttl(TTL)).await;
    let theirs = (now(&server, Unit::Seconds) + 90).to_string();
    server.cli(&["SET", "k", &theirs]);
    lost(hold.release_after(TTL).await);
    assert_eq!(value(&server, "k"), Some(theirs));
}

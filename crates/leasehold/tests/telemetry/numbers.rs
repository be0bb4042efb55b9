//! Counters, gauges and histograms.

use leasehold::{Client, Error, StoreErrorKind};
use testkit::RedisServer;
use tokio::task::JoinSet;

use crate::common::{LONG, Place, TTL, eventually, passing, renewed, stand_in_line, take};
use crate::millis;
use crate::recorder::Numbers;
use crate::scene::Scene;

const HELD: &str = "leasehold_held";
const HOLD: &str = "leasehold_hold_seconds";
const RENEW: &str = "leasehold_renew_seconds";

fn asked(outcome: &str) -> String {
    format!("leasehold_acquire_total{{outcome=\"{outcome}\"}}")
}

fn waited(outcome: &str) -> String {
    format!("leasehold_wait_seconds{{outcome=\"{outcome}\"}}")
}

fn lost(cause: &str) -> String {
    format!("leasehold_lost_total{{cause=\"{cause}\"}}")
}

fn error(kind: &str) -> String {
    format!("leasehold_store_errors_total{{kind=\"{kind}\"}}")
}

/// All outcomes so far: acquired, busy, timeout, unavailable, denied, invalid, cancelled.
fn outcomes(numbers: &Numbers) -> [i64; 7] {
    let all = [
        "acquired",
        "busy",
        "timeout",
        "unavailable",
        "denied",
        "invalid",
        "cancelled",
    ];
    all.map(|outcome| numbers.sum(&asked(outcome)))
}

/// All store errors so far.
fn errors(numbers: &Numbers) -> i64 {
    let all = numbers.all();
    let errors = all
        .iter()
        .filter(|name| name.starts_with("leasehold_store_errors_total"));
    errors.map(|name| numbers.sum(name)).sum()
}

#[tokio::test]
async fn every_acquisition_has_one_outcome() {
    let (numbers, scene) = (Numbers::default(), Scene::memory());
    let holder = scene.client().await;
    let client = numbers.client(&scene.place, scene.builder()).await;
    assert_eq!(outcomes(&numbers), [0; 7]);

    drop(take(&client, "free").await);
    assert_eq!(outcomes(&numbers), [1, 0, 0, 0, 0, 0, 0]);

    let lease = take(&holder, "x").await;
    let lock = client.mutex("x");
    assert!(lock.try_acquire().await.expect("an answer").is_none());
    assert_eq!(outcomes(&numbers), [1, 1, 0, 0, 0, 0, 0]);

    let waiting = scene.waits_in_vain(&lock, millis(50)).await;
    assert!(matches!(waiting, Err(Error::Timeout(_))), "{waiting:?}");
    assert_eq!(outcomes(&numbers), [1, 1, 1, 0, 0, 0, 0]);
    assert!(numbers.seconds(&waited("timeout")) >= 0.05);

    lock.clone()
        .ttl(millis(1))
        .acquire()
        .await
        .expect_err("invalid");
    client.mutex("").try_acquire().await.expect_err("invalid");
    assert_eq!(outcomes(&numbers), [1, 1, 1, 0, 0, 2, 0]);

    let waiting = tokio::time::timeout(millis(50), lock.acquire()).await;
    waiting.expect_err("busy");
    assert_eq!(outcomes(&numbers), [1, 1, 1, 0, 0, 2, 1]);

    assert_eq!(numbers.count(&waited("acquired")), 1);
    assert_eq!(numbers.count(&waited("cancelled")), 1);
    // A busy lock is no error. The other outcomes are no errors of the store either.
    assert_eq!(errors(&numbers), 0);
    drop(lease);
}

#[tokio::test]
async fn nothing_is_held_after_a_release_a_drop_and_a_close() {
    let (numbers, place) = (Numbers::default(), Place::memory());
    let client = numbers.client(&place, Client::builder()).await;
    assert_eq!(numbers.sum(HELD), 0);
    let released = take(&client, "released").await;
    let dropped = take(&client, "dropped").await;
    let closed = take(&client, "closed").await;
    assert_eq!(numbers.sum(HELD), 3);
    released.release().await.expect("held");
    assert_eq!(numbers.sum(HELD), 2);
    drop(dropped);
    assert_eq!(numbers.sum(HELD), 1);
    client.close().await;
    assert_eq!(numbers.sum(HELD), 0);
    drop(closed);
    assert_eq!((numbers.sum(HELD), numbers.count(HOLD)), (0, 3));
    assert_eq!(numbers.sum(&lost("closed")), 1);
}

#[tokio::test]
async fn holds_and_renewals_are_timed() {
    let (numbers, scene) = (Numbers::default(), Scene::memory());
    let client = numbers.client(&scene.place, scene.builder()).await;
    let lease = take(&client, "x").await;
    assert_eq!(numbers.count(RENEW), 0);
    for _ in 0..2 {
        renewed(&scene.time, &lease).await;
    }
    eventually("both are counted", async || numbers.count(RENEW) > 1).await;
    lease.extend(TTL).await.expect("held");
    lease.release().await.expect("held");
    // Half of the TTL passed before each renewal, less the drift of the clocks.
    assert!(numbers.seconds(HOLD) >= 29.0, "{}", numbers.seconds(HOLD));
    assert!(numbers.seconds(RENEW) < numbers.seconds(HOLD));
}

#[tokio::test]
async fn losses_are_counted_once_by_their_cause() {
    let (numbers, scene) = (Numbers::default(), Scene::redis());
    let (server, time) = (scene.server(), &scene.time);
    let client = numbers.client(&scene.place, scene.builder()).await;
    let lock = client.mutex("x").ttl(TTL);

    let lease = lock.acquire().await.expect("free");
    server.cli(&["DEL", "x"]);
    time.pass(lease.valid_for() / 2);
    lease.lost().await;
    let not_held = lost("not_held");
    eventually("it is told", async || numbers.sum(&not_held) == 1).await;
    assert_eq!((numbers.sum(HELD), numbers.count(HOLD)), (0, 1));
    lease.release().await.expect_err("lost");

    // The release finds this loss.
    let lease = take(&client, "x").await;
    server.cli(&["DEL", "x"]);
    lease.release().await.expect_err("lost");
    assert_eq!((numbers.sum(&not_held), numbers.sum(HELD)), (2, 0));

    let limited = lock.clone().max_hold(TTL / 10).acquire().await;
    let limited = limited.expect("free");
    time.pass(TTL / 10);
    limited.lost().await;
    drop(limited);
    let max_hold = lost("max_hold");
    eventually("it is told", async || numbers.sum(&max_hold) == 1).await;

    let unrenewed = lock.clone().auto_renew(false);
    let unrenewed = passing(time, "it is free", unrenewed.acquire()).await;
    let unrenewed = unrenewed.expect("free");
    time.pass(unrenewed.valid_for());
    unrenewed.lost().await;
    unrenewed.release().await.expect_err("lost");
    let deadline = lost("deadline");
    eventually("it is told", async || numbers.sum(&deadline) == 1).await;
    assert_eq!((numbers.sum(&not_held), numbers.sum(&max_hold)), (2, 1));
    assert_eq!(numbers.sum(HELD), 0);
}

#[tokio::test]
async fn a_server_that_stops_is_an_error_and_never_a_busy_lock() {
    let (numbers, scene) = (Numbers::default(), Scene::redis());
    let client = numbers.client(&scene.place, scene.builder()).await;
    let lease = take(&client, "x").await;
    assert_eq!((errors(&numbers), numbers.count(RENEW)), (0, 0));
    scene.server().kill();
    scene.time.pass(lease.valid_for() / 2);
    let failing = eventually("a renewal fails", async || {
        numbers.count(RENEW) > 0 && errors(&numbers) > 0
    });
    passing(&scene.time, "a renewal", failing).await;
    assert!(!lease.is_lost());
    scene.time.pass(lease.valid_for());
    lease.lost().await;
    let deadline = lost("deadline");
    eventually("it is told", async || numbers.sum(&deadline) == 1).await;
    let lock = client.mutex("y");
    let asking = passing(&scene.time, "an answer", lock.try_acquire()).await;
    assert!(matches!(asking, Err(Error::Store(_))), "{asking:?}");
    assert_eq!(outcomes(&numbers), [1, 0, 0, 1, 0, 0, 0]);
    assert!(numbers.sum(&error("unreachable")) > 0);
}

#[tokio::test]
async fn access_denied_is_an_outcome_of_its_own() {
    let (numbers, server) = (Numbers::default(), RedisServer::start());
    let rules = [
        "ACL", "SETUSER", "worker", "on", ">pw", "~other*", "&*", "+@all",
    ];
    assert_eq!(server.cli(&rules).text(), "OK");
    let url = format!("redis://worker:pw@127.0.0.1:{}/", server.port());
    let client = {
        let _recording = metrics::set_default_local_recorder(&numbers);
        let builder = Client::builder().request_timeout(LONG);
        builder.connect(&url).await.expect("it may connect")
    };
    let asking = client.mutex("x").try_acquire().await;
    let denied = |error: &Error| matches!(error, Error::Store(error) if error.kind == StoreErrorKind::Denied);
    assert!(asking.is_err_and(|error| denied(&error)));
    assert_eq!(outcomes(&numbers), [0, 0, 0, 0, 1, 0, 0]);
    assert!(numbers.sum(&error("denied")) > 0);
}

#[tokio::test]
async fn leases_that_no_store_is_asked_for_count_too() {
    let (numbers, place) = (Numbers::default(), Place::memory());
    let client = numbers.client(&place, Client::builder()).await;
    let lock = client.mutex("x").ttl(TTL).linger(TTL);
    let lease = lock.acquire().await.expect("free");
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, lock.clone()).await;
    assert_eq!(numbers.sum(HELD), 1);
    lease.release().await.expect("held");
    let (_, handed_on) = waiting.join_next().await.expect("one").expect("no panic");
    assert_eq!(numbers.sum(HELD), 1);
    handed_on.expect("its turn").release().await.expect("held");
    assert_eq!((numbers.sum(HELD), numbers.count(HOLD)), (0, 2));
    let idle = lock.acquire().await.expect("idle here");
    assert_eq!(numbers.sum(HELD), 1);
    drop(idle);
    assert_eq!((numbers.sum(HELD), numbers.count(HOLD)), (0, 3));
    assert_eq!(outcomes(&numbers), [3, 0, 0, 0, 0, 0, 0]);
}

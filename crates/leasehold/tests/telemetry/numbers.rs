//! Counters, gauges and histograms.

use std::time::Duration;

use leasehold::Client;
use tokio::task::JoinSet;

use crate::common::{Place, TTL, eventually, renewed, stand_in_line, take};
use crate::recorder::Numbers;
use crate::scene::Scene;

const HELD: &str = "leasehold_held{mode=\"exclusive\"}";
const HOLD: &str = "leasehold_hold_seconds{mode=\"exclusive\"}";
const RENEW: &str = "leasehold_renew_seconds";

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
    let closed = "leasehold_lost_total{cause=\"closed\"}";
    assert_eq!(numbers.sum(closed), 1);
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
    let acquired = "leasehold_acquire_total{outcome=\"acquired\"}";
    assert_eq!(numbers.sum(acquired), 3);
}

#[tokio::test]
async fn each_mode_has_numbers_of_its_own() {
    let (numbers, place) = (Numbers::default(), Place::memory());
    let client = numbers.client(&place, Client::builder()).await;
    let rows = |name: &str| {
        ["exclusive", "shared", "slots"].map(|mode| format!("leasehold_{name}{{mode=\"{mode}\"}}"))
    };
    let waited = |outcome: &str| {
        let series =
            |mode: &str| format!("leasehold_wait_seconds{{mode=\"{mode}\",outcome=\"{outcome}\"}}");
        ["exclusive", "shared", "slots"].map(|mode| numbers.count(&series(mode)))
    };
    let held = || rows("held").map(|series| numbers.sum(&series));
    let readers = client.rw_lock("r").read().ttl(TTL);
    let (one, other) = (readers.acquire().await, readers.acquire().await);
    let permit = client.semaphore("s", 3).ttl(TTL).acquire().await;
    let mutex = take(&client, "m").await;
    assert_eq!(held(), [1, 2, 1]);
    let limit = Duration::from_millis(1);
    let writes = client.rw_lock("r").write().acquire_within(limit).await;
    assert!(writes.is_err(), "it is read");
    let full = client.semaphore("s", 1).acquire_within(limit).await;
    assert!(full.is_err(), "its slot is held");
    assert_eq!(waited("acquired"), [1, 2, 1]);
    assert_eq!(waited("timeout"), [1, 0, 1]);
    for lease in [one, other] {
        lease.expect("free").release().await.expect("held");
    }
    drop((permit, mutex));
    assert_eq!(held(), [0, 0, 0]);
    let holds = rows("hold_seconds").map(|series| numbers.count(&series));
    assert_eq!(holds, [1, 2, 1]);
}

//! A source that is down.

use leasehold_cache::Cache;
use testkit::eventually;

use crate::common::Place;
use crate::fleet::{Fleet, PLENTY, total};

/// The first back-off, in milliseconds.
const BACK_OFF: u64 = 400;

#[test]
fn the_fleet_tries_once_for_each_back_off_and_everyone_is_told() {
    let mut fleet = Fleet::start(4);
    fleet.begin(&format!(
        "offer key=hot every=5000 calls=1 endless=1 takes=10 fails=1 back_off={BACK_OFF}"
    ));
    eventually(PLENTY, "two back-offs end", || {
        fleet.source.loads("hot") > 2
    });
    fleet.source.sign("enough", "hot");
    let told = fleet.end();
    let record = fleet.source.record("hot");
    let ended: Vec<_> = record
        .iter()
        .filter(|read| read.what == "failed")
        .map(|read| read.at)
        .collect();
    let begun: Vec<_> = record
        .iter()
        .filter(|read| read.what == "begun")
        .map(|read| read.at)
        .collect();
    // The back-off doubles with each failure. The client takes up to half of it off at random.
    for (failures, (end, next)) in ended.iter().zip(begun.iter().skip(1)).enumerate() {
        let pause = next.saturating_sub(*end);
        let least = std::time::Duration::from_millis((BACK_OFF << failures) / 2 - 5);
        assert!(
            pause >= least,
            "{pause:?} after {failures} failures: {record:?}"
        );
    }
    assert!(told.iter().all(|told| told.get("failed") > 0), "{told:?}");
    assert!(total(&told, "failed") > begun.len() as u64, "{told:?}");
    assert_eq!(total(&told, "busy") + total(&told, "error"), 0, "{told:?}");
    fleet.assert_nothing_stays();
}

#[test]
fn a_stale_value_serves_meanwhile() {
    let mut fleet = Fleet::start(4);
    fleet.store("hot", "fresh=1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    let told = fleet.all("offer key=hot every=5000 calls=100 takes=10 fails=1 back_off=600000");
    eventually(PLENTY, "it is tried", || fleet.source.loads("hot") > 1);
    assert_eq!(fleet.source.loads("hot"), 2, "{told:?}");
    assert_eq!(total(&told, "stale"), 400, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_refuses_entries_with_a_sentence() {
    let place = Place::quorum();
    let cache = Cache::new(&place.client().await);
    let refused = cache.get::<String>("home").await;
    let said = refused.expect_err("a quorum has none").to_string();
    assert!(
        said.contains("it keeps no cache entries: use one server"),
        "{said}"
    );
}

//! The registered series and their labels. A label names a lock only if the program declared the name.

use leasehold::Client;

use crate::common::{Place, take};
use crate::recorder::Numbers;
use crate::scene::Scene;

#[tokio::test]
async fn all_are_described_on_the_page_and_there_from_the_start() {
    // A quorum has all of them, also those of its nodes.
    let (numbers, scene) = (Numbers::default(), Scene::quorum());
    let builder = scene.builder().metric_names(["declared"]);
    let _client = numbers.client(&scene.place, builder).await;
    // The tests of `leasehold-cache` compare the others.
    numbers.are_as_on_the_page(|name| !name.contains("_cache_"));
}

#[tokio::test]
async fn without_declared_names_there_is_no_such_label() {
    let numbers = Numbers::default();
    let client = numbers.client(&Place::memory(), Client::builder()).await;
    let before = numbers.all();
    for lock in ["a", "b", "c"] {
        drop(take(&client, lock).await);
    }
    // The locks added no series.
    assert_eq!(numbers.all(), before);
    assert!(
        before.iter().all(|series| !series.contains("lock=")),
        "{before:?}"
    );
}

#[tokio::test]
async fn declared_names_show_zero_and_count_apart() {
    let numbers = Numbers::default();
    let names = ["nightly", "order:*", "order:big:*"];
    let builder = Client::builder().namespace("app").metric_names(names);
    let client = numbers.client(&Place::memory(), builder).await;
    let acquired = |lock: &str| {
        let series = format!("leasehold_acquire_total{{lock={lock:?},outcome=\"acquired\"}}");
        numbers.sum(&series)
    };
    let shown = ["nightly", "order:*", "order:big:*", "other"];
    assert_eq!(shown.map(acquired), [0; 4]);
    let before = numbers.all();
    for lock in [
        "nightly",
        "nightly2",
        "order:1",
        "order:2",
        "order:big:1",
        "ordered",
        "order:*",
    ] {
        let lease = take(&client, lock).await;
        lease.release().await.expect("held");
    }
    assert_eq!(shown.map(acquired), [1, 3, 1, 2]);
    let held = numbers.count("leasehold_hold_seconds{lock=\"order:*\",mode=\"exclusive\"}");
    assert_eq!(held, 3);
    assert_eq!(numbers.all(), before);
    // A failure of the store belongs to no lock.
    let errors = before
        .iter()
        .filter(|series| series.contains("store_errors"));
    assert!(errors.clone().count() > 0 && errors.clone().all(|series| !series.contains("lock=")));
}

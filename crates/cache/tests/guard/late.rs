//! Loads that are slow, dead, or overtaken.

use leasehold_cache::Origin;
use tokio::time::{Instant, sleep};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_load_that_is_slower_than_its_lease_is_the_only_one() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let (one, two) = tokio::join!(
        cache
            .get_or_refresh("home", fleet.slow(20 * SECOND))
            .into_future(),
        other
            .get_or_refresh("home", fleet.slow(20 * SECOND))
            .into_future(),
    );
    assert_eq!((*one.unwrap(), *two.unwrap(), fleet.loads()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn without_renewal_second_load_replaces_first_value() {
    let fleet = Fleet::new();
    let policy = || {
        Policy::default()
            .lease(3 * SECOND)
            .load_at_most(Duration::ZERO)
            .jitter(0.0)
    };
    let caches = [(); 2].map(|()| Cache::new(&fleet.client()).policy(policy()));
    let begun = Instant::now();
    let (one, two) = tokio::join!(
        caches[0]
            .get_or_refresh("home", fleet.slow(5 * SECOND))
            .into_future(),
        caches[1]
            .get_or_refresh("home", fleet.slow(5 * SECOND))
            .into_future(),
    );
    assert_eq!((*one.unwrap(), fleet.loads()), (1, 2));
    assert!((1..=2).contains(&*two.unwrap()));
    assert!(begun.elapsed() <= 9 * SECOND);
    sleep(5 * SECOND).await;
    let got = caches[0]
        .get_or_refresh("home", fleet.slow(SECOND))
        .await
        .unwrap();
    assert_eq!((*got, got.origin(), fleet.loads()), (2, Origin::Fresh, 2));
}

#[tokio::test(start_paused = true)]
async fn value_loaded_before_invalidation_is_never_fresh_after() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let early = tokio::spawn(
        cache
            .get_or_refresh("home", fleet.slow(4 * SECOND))
            .into_future(),
    );
    sleep(SECOND).await;
    other.invalidate("home").await.unwrap();
    // The late call is in the process that still loads the old value. It must not get that value.
    let late = cache
        .get_or_refresh("home", fleet.slow(SECOND))
        .must_be_fresh()
        .into_future();
    let late = tokio::spawn(late);
    let elsewhere = other
        .get_or_refresh("home", fleet.slow(SECOND))
        .await
        .unwrap();
    assert_eq!((*elsewhere, elsewhere.origin()), (2, Origin::Loaded));
    // The early call began before the invalidation, so it may return the old value.
    assert_eq!(*early.await.unwrap().unwrap(), 1);
    let late = late.await.unwrap().unwrap();
    assert_eq!(*late, 2);
    let stored = other.get::<u32>("home").await.unwrap().unwrap();
    assert_eq!((*stored, stored.origin()), (2, Origin::Fresh));
}

#[tokio::test(start_paused = true)]
async fn what_was_invalidated_while_it_was_loaded_serves_as_stale() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let early = tokio::spawn(
        cache
            .get_or_refresh("home", fleet.slow(4 * SECOND))
            .into_future(),
    );
    sleep(SECOND).await;
    other.invalidate("home").await.unwrap();
    assert_eq!(*early.await.unwrap().unwrap(), 1);
    let got = other
        .get_or_refresh("home", fleet.slow(SECOND))
        .await
        .unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Stale));
    sleep(2 * SECOND).await;
    let got = cache
        .get_or_refresh("home", fleet.slow(SECOND))
        .await
        .unwrap();
    assert_eq!((*got, got.origin()), (2, Origin::Fresh));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_everything_costs_one_load() {
    let fleet = Fleet::new();
    let caches: Vec<_> = (0..4).map(|_| fleet.cache()).collect();
    caches[0]
        .get_or_refresh("home", fleet.slow(SECOND))
        .await
        .unwrap();
    fleet.memory.clear();
    let calls = (0..40).map(|at| {
        let call = caches[at % 4].get_or_refresh("home", fleet.slow(SECOND));
        call.into_future()
    });
    for got in futures_util::future::join_all(calls).await {
        assert_eq!(*got.unwrap(), 2);
    }
    assert_eq!(fleet.loads(), 2);
}

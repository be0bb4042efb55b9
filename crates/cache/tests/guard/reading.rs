//! Entries that are fresh, stale, missing or invalidated, and loads that are slow or overtaken.

use futures_util::future::join_all;
use leasehold_cache::Error;
use tokio::time::{Instant, timeout};

use super::*;

#[tokio::test(start_paused = true)]
async fn one_loads_what_is_missing_and_all_others_wait_for_it() {
    let fleet = Fleet::new();
    let caches: Vec<_> = (0..4).map(|_| fleet.cache()).collect();
    let begun = Instant::now();
    let calls = (0..100).map(|at| fleet.call(&caches[at % 4], SECOND).into_future());
    let got = join_all(calls).await.into_iter().map(Result::unwrap);
    let got: Vec<_> = got.collect();
    assert_eq!(fleet.loads(), 1);
    assert!(got.iter().all(|got| **got == 1));
    let origins = |origin| got.iter().filter(|got| got.origin() == origin).count();
    assert_eq!((origins(Origin::Loaded), origins(Origin::Waited)), (1, 99));
    // The waiters are notified. Their polls would come later.
    assert!(
        begun.elapsed() < SECOND + Duration::from_millis(20),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(fleet.read(&caches[3]).await, (1, Origin::Fresh));
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_serves_at_once_while_one_refreshes_it() {
    let fleet = Fleet::new();
    let caches = [fleet.cache(), fleet.cache()];
    fleet.read(&caches[0]).await;
    sleep(61 * SECOND).await;
    for cache in caches.iter().cycle().take(20) {
        let begun = Instant::now();
        let got = fleet.call(cache, SECOND).await.unwrap();
        assert_eq!((*got, got.origin()), (1, Origin::Stale));
        assert!(got.age() >= 61 * SECOND, "{:?}", got.age());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        sleep(SECOND / 50).await;
    }
    assert_eq!(fleet.loads(), 2);
    sleep(SECOND).await;
    for cache in &caches {
        assert_eq!(fleet.read(cache).await, (2, Origin::Fresh));
    }
}

#[tokio::test(start_paused = true)]
async fn who_must_have_it_fresh_waits() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    fleet.read(&cache).await;
    sleep(61 * SECOND).await;
    let (one, two) = tokio::join!(
        fleet.call(&cache, SECOND).must_be_fresh().into_future(),
        fleet.call(&other, SECOND).must_be_fresh().into_future(),
    );
    assert_eq!((*one.unwrap(), *two.unwrap(), fleet.loads()), (2, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_invalidated_is_stale_and_refreshed_by_one() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    fleet.read(&cache).await;
    other.invalidate("home").await.unwrap();
    for cache in [&cache, &other] {
        assert_eq!(fleet.read(cache).await, (1, Origin::Stale));
    }
    sleep(2 * SECOND).await;
    assert_eq!(fleet.read(&other).await, (2, Origin::Fresh));
    assert_eq!(fleet.loads(), 2);
    cache.remove("home").await.unwrap();
    let none = other.get::<u32>("home").await.unwrap();
    assert!(none.is_none());
    assert_eq!(fleet.read(&other).await, (3, Origin::Loaded));
    assert_eq!(fleet.loads(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_told_so_and_loads_nothing() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let slow = tokio::spawn(fleet.call(&cache, 10 * SECOND).into_future());
    sleep(SECOND).await;
    let begun = Instant::now();
    let busy = fleet.call(&other, SECOND).wait_at_most(3 * SECOND).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    assert_eq!((begun.elapsed(), fleet.loads()), (3 * SECOND, 1));
    assert_eq!(*slow.await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_caller_ends_a_load() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let call = fleet.call(&cache, 5 * SECOND).into_future();
    assert!(timeout(SECOND, call).await.is_err());
    let begun = Instant::now();
    let got = fleet.call(&other, SECOND).await.unwrap();
    assert_eq!((*got, fleet.loads()), (1, 1));
    assert!(begun.elapsed() <= 4 * SECOND + Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn a_hot_entry_is_refreshed_early_by_one_and_never_expires() {
    let fleet = Fleet::new();
    let caches: Vec<_> = (0..4)
        .map(|_| {
            let policy = Policy::default().fresh_for(10 * SECOND);
            Cache::new(&fleet.client()).policy(policy)
        })
        .collect();
    fleet.call(&caches[0], SECOND / 5).await.unwrap();
    for at in 0..100_000 {
        let got = fleet.call(&caches[at % 4], SECOND / 5).await.unwrap();
        assert_eq!(got.origin(), Origin::Fresh, "after {at} ms");
        sleep(Duration::from_millis(1)).await;
    }
    // In 100 s, one refresh comes each 8 to 10 s.
    let loads = fleet.loads();
    assert!((10..=14).contains(&loads), "{loads}");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_slower_than_its_lease_is_the_only_one() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let (one, two) = tokio::join!(
        fleet.call(&cache, 20 * SECOND).into_future(),
        fleet.call(&other, 20 * SECOND).into_future(),
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
        fleet.call(&caches[0], 5 * SECOND).into_future(),
        fleet.call(&caches[1], 5 * SECOND).into_future(),
    );
    assert_eq!((*one.unwrap(), fleet.loads()), (1, 2));
    assert!((1..=2).contains(&*two.unwrap()));
    assert!(begun.elapsed() <= 9 * SECOND);
    sleep(5 * SECOND).await;
    assert_eq!(fleet.read(&caches[0]).await, (2, Origin::Fresh));
    assert_eq!(fleet.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_invalidated_while_it_was_loaded_serves_as_stale() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let early = tokio::spawn(fleet.call(&cache, 4 * SECOND).into_future());
    sleep(SECOND).await;
    other.invalidate("home").await.unwrap();
    assert_eq!(*early.await.unwrap().unwrap(), 1);
    assert_eq!(fleet.read(&other).await, (1, Origin::Stale));
    sleep(2 * SECOND).await;
    assert_eq!(fleet.read(&cache).await, (2, Origin::Fresh));
}

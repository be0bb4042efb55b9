//! Loaders that fail, panic or go away.

use std::collections::HashMap;

use futures_util::future::join_all;
use leasehold_cache::{Error, Lifetime};
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_and_the_fleet_leaves_the_source_alone() {
    let fleet = Fleet::new();
    let caches: Vec<_> = (0..4).map(|_| fleet.cache()).collect();
    let calls = (0..40).map(|at| fleet.failing(&caches[at % 4]).into_future());
    for failed in join_all(calls).await {
        let failed = load_failed(failed);
        assert_eq!(failed.text, "the database is down");
        assert!(failed.retry_after <= SECOND, "{failed}");
    }
    assert_eq!(fleet.loads(), 1);
    let begun = Instant::now();
    let mut tried = Vec::new();
    while begun.elapsed() < 60 * SECOND {
        for cache in &caches {
            let before = fleet.loads();
            let failed = fleet.failing(cache).await;
            assert!(matches!(failed, Err(Error::Load(_))), "{failed:?}");
            if fleet.loads() > before {
                tried.push(begun.elapsed());
            }
        }
        sleep(SECOND / 50).await;
    }
    // The pauses are at most 1, 2, 4, 8, 16 and 30 s, and at least half of that.
    assert!((4..=7).contains(&tried.len()), "{tried:?}");
    let load = || async { Ok::<u32, String>(1) };
    let got = caches[0].get_or_refresh("other", load).await.unwrap();
    assert_eq!(got.origin(), Origin::Loaded);
}

#[tokio::test(start_paused = true)]
async fn stale_value_serves_failed_loads_even_if_must_be_fresh() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    fleet.read(&cache).await;
    sleep(61 * SECOND).await;
    let got = fleet.failing(&other).must_be_fresh().await.unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Stale));
    let strict = Policy::default().must_be_fresh(true).stale_if_error(false);
    let failed = fleet.failing(&cache).policy(strict).await;
    assert!(matches!(failed, Err(Error::Load(_))), "{failed:?}");
    assert_eq!(fleet.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_for_everyone() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let panics = || async {
        sleep(SECOND / 10).await;
        Ok::<u32, String>(u32::try_from(-1).expect("out of cheese"))
    };
    let (one, two) = tokio::join!(
        cache.get_or_refresh("home", panics).into_future(),
        other.get_or_refresh("home", panics).into_future(),
    );
    for failed in [one, two] {
        let failed = load_failed(failed);
        assert!(failed.text.contains("out of cheese"), "{failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_lets_go_of_its_loads() {
    let fleet = Fleet::new();
    let client = fleet.client();
    let (cache, other) = (Cache::new(&client), fleet.cache());
    let call = fleet.call(&cache, 1_000 * SECOND);
    let call = tokio::spawn(call.into_future());
    sleep(SECOND).await;
    let begun = Instant::now();
    client.close().await;
    let ended = call.await.unwrap();
    assert!(matches!(ended, Err(Error::Store(_))), "{ended:?}");
    let got = fleet.call(&other, SECOND).await.unwrap();
    assert_eq!(*got, 2);
    assert!(
        begun.elapsed() <= SECOND + Duration::from_millis(20),
        "{:?}",
        begun.elapsed()
    );
    assert!(cache.get::<u32>("home").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_asks_for_its_own_entry_is_told_so_at_once() {
    let fleet = Fleet::new();
    let client = fleet.client();
    let cache = Cache::new(&client);
    for inner in [cache.clone(), Cache::new(&client)] {
        let loader = || async move {
            let nested = inner.get_or_refresh("home", || async { Ok::<u32, String>(1) });
            nested.await.map(|got| *got + 1)
        };
        let begun = Instant::now();
        let failed = cache.get_or_refresh("home", loader).await;
        let failed = load_failed(failed);
        assert!(failed.text.contains("its own loader"), "{failed}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        cache.remove("home").await.unwrap();
    }
    // A loader may load another entry.
    let inner = cache.clone();
    let loader = || async move {
        let nested = inner.get_or_refresh("part", || async { Ok::<u32, String>(1) });
        nested.await.map(|got| *got + 1)
    };
    let got = cache.get_or_refresh("whole", loader).await.unwrap();
    assert_eq!(*got, 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_loaded_anew() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let words = || async { Ok::<String, String>("hello".into()) };
    cache.get_or_refresh("home", words).await.unwrap();
    assert!(matches!(
        other.get::<u32>("home").await,
        Err(Error::Value { .. })
    ));
    assert_eq!(fleet.read(&other).await, (1, Origin::Loaded));
    let packed = fleet.read(&other.message_pack()).await;
    assert_eq!(packed, (2, Origin::Loaded));
}

#[tokio::test(start_paused = true)]
async fn what_the_source_has_no_more_does_not_go_on_as_stale() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    for gone in 0..2 {
        fleet.read(&cache).await;
        sleep(61 * SECOND).await;
        if gone == 0 {
            let none = |_: Vec<String>| async { Ok::<_, String>(HashMap::<String, u32>::new()) };
            let many = cache.get_many_or_refresh(["home"], none).await.unwrap();
            assert_eq!(many.values["home"].origin(), Origin::Stale);
        } else {
            let call = fleet.call(&cache, Duration::ZERO);
            let got = call.lifetime(|_| Lifetime::NotStored).await;
            assert_eq!(got.unwrap().origin(), Origin::Stale);
        }
        sleep(SECOND).await;
        assert!(cache.get::<u32>("home").await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_of_and_a_slow_one_is_asked() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let read = || fleet.call(&cache, Duration::ZERO);
    read().await.unwrap();
    read().await.unwrap();
    assert_eq!(fleet.loads(), 1);
    let faults = fleet.memory.faults();
    faults.fail(leasehold::StoreErrorKind::Unreachable);
    let refused = cache.invalidate("home").await.unwrap_err();
    assert!(refused.to_string().contains("cannot connect"), "{refused}");
    faults.slow(SECOND / 10);
    let asked = fleet.clock.now();
    read().await.unwrap();
    assert!(fleet.clock.now().since(asked) >= SECOND / 10);
}

/// The runtime of the first caller ends, and with it the loader. The caller is told, and whoever waits loads.
#[test]
fn the_end_of_a_loaders_runtime_is_an_error_of_its_caller_only() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    let cache = Cache::new(&Client::embedded().unwrap());
    let (begins, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let _here = handle.enter();
            let hangs = move || async move {
                begins.send(()).unwrap();
                std::future::pending::<Result<u32, String>>().await
            };
            cache.get_or_refresh("home", hangs).wait()
        });
        begun.recv().unwrap();
        let joins = cache.get_or_refresh("home", || async { Ok::<u32, String>(2) });
        let joiner = scope.spawn(|| joins.wait());
        // Lets it join the load.
        std::thread::sleep(SECOND / 20);
        runtime.shutdown_background();
        let failed = leader.join().unwrap().unwrap_err();
        assert!(failed.to_string().contains("its runtime"), "{failed}");
        assert_eq!(*joiner.join().unwrap().unwrap(), 2);
    });
}

//! Edge cases in which a caller could hang, poll without a pause, or get a wrong result.

use std::future::pending;

use leasehold_cache::{Error, Lifetime};
use tokio::time::{Instant, timeout};

use super::*;

/// Starts the call, and returns after all steps that can happen at once.
async fn under_way<V, C>(
    call: GetOrRefresh<V, C>,
) -> tokio::task::JoinHandle<<GetOrRefresh<V, C> as IntoFuture>::Output>
where
    GetOrRefresh<V, C>: IntoFuture<IntoFuture: Send + 'static, Output: Send + 'static>,
{
    let call = tokio::spawn(call.into_future());
    sleep(Duration::from_millis(1)).await;
    call
}

/// Three clients. The first load ends with a stale value, and the second client is notified of it. The third client still loads.
async fn stale_while_loading(fleet: &Fleet) -> (Cache, Cache) {
    let (early, second, third) = (fleet.cache(), fleet.cache(), fleet.cache());
    drop(under_way(fleet.call(&early, 4 * SECOND)).await);
    third.invalidate("home").await.unwrap();
    drop(under_way(fleet.call(&third, 10 * SECOND)).await);
    (second, third)
}

#[tokio::test(start_paused = true)]
async fn who_cannot_read_the_stale_value_waits_for_the_next() {
    let fleet = Fleet::new();
    let (second, _third) = stale_while_loading(&fleet).await;
    let begun = Instant::now();
    let reads = under_way(fleet.call(&second, SECOND)).await;
    let packed = fleet.call(&second.message_pack(), SECOND);
    let packed = packed.wait_at_most(6 * SECOND).await;
    assert!(matches!(packed, Err(Error::Busy { .. })), "{packed:?}");
    assert_eq!(begun.elapsed(), 6 * SECOND + Duration::from_millis(1));
    let got = reads.await.unwrap().unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Stale));
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_is_not_served_from_what_others_were_shown() {
    let fleet = Fleet::new();
    let (second, third) = stale_while_loading(&fleet).await;
    let strict = fleet.call(&second, SECOND).must_be_fresh();
    let strict = under_way(strict).await;
    sleep(5 * SECOND).await;
    assert_eq!(fleet.read(&second).await, (1, Origin::Stale));
    third.remove("home").await.unwrap();
    let got = fleet.call(&second, SECOND).await.unwrap();
    assert!(*got > 1, "{got:?}");
    assert!(*strict.await.unwrap().unwrap() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_stale_value_that_came_to_light_serves_when_loading_fails() {
    let fleet = Fleet::new();
    let (second, third) = (fleet.cache(), fleet.cache());
    let early = fleet.cache();
    drop(under_way(fleet.call(&early, 4 * SECOND)).await);
    third.invalidate("home").await.unwrap();
    let fails = || async {
        sleep(10 * SECOND).await;
        Err::<u32, _>("down")
    };
    drop(under_way(third.get_or_refresh("home", fails)).await);
    let begun = Instant::now();
    let strict = fleet.call(&second, SECOND).must_be_fresh();
    let got = strict.await.unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Stale));
    assert!(begun.elapsed() > 9 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_another_is_told_that_the_client_closes() {
    let fleet = Fleet::new();
    let (client, other) = (fleet.client(), fleet.cache());
    drop(under_way(fleet.call(&other, 20 * SECOND)).await);
    let cache = Cache::new(&client);
    let calls = [(); 2].map(|()| fleet.call(&cache, SECOND));
    let calls = calls.map(|call| tokio::spawn(call.into_future()));
    sleep(SECOND).await;
    let begun = Instant::now();
    client.close().await;
    for call in calls {
        let ended = call.await.unwrap();
        assert!(matches!(ended, Err(Error::Store(_))), "{ended:?}");
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_hangs_keeps_an_entry_for_its_limit_only() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let hangs = cache.get_or_refresh("home", pending::<Result<u32, String>>);
    let begun = Instant::now();
    let first = under_way(hangs).await;
    let busy = fleet.call(&cache, SECOND).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    let got = loop {
        match fleet.call(&cache, SECOND).await {
            Ok(got) => break got,
            Err(busy) => assert!(begun.elapsed() < 100 * SECOND, "{busy:?}"),
        }
    };
    assert_eq!((*got, fleet.loads()), (1, 1));
    assert!(matches!(first.await.unwrap(), Err(Error::Busy { .. })));
}

#[tokio::test(start_paused = true)]
async fn reader_after_invalidation_does_not_wait_for_older_load() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let early = under_way(fleet.call(&cache, 25 * SECOND)).await;
    other.invalidate("home").await.unwrap();
    sleep(SECOND).await;
    let begun = Instant::now();
    let got = fleet.call(&cache, SECOND).must_be_fresh().await.unwrap();
    assert_eq!((*got, got.origin()), (2, Origin::Loaded));
    assert_eq!(begun.elapsed(), SECOND);
    assert_eq!(*early.await.unwrap().unwrap(), 1);
    let stored = other.get::<u32>("home").await.unwrap().unwrap();
    assert_eq!((*stored, stored.origin()), (2, Origin::Fresh));
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn loader_that_panics_when_dropped_does_not_block_entry() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    drop(under_way(fleet.call(&other, 5 * SECOND)).await);
    // Another client loads, so the cache never calls this loader.
    let bomb = Bomb;
    let never = move || async move {
        let _bomb = bomb;
        Ok::<u32, String>(9)
    };
    let call = under_way(cache.get_or_refresh("home", never)).await;
    sleep(6 * SECOND).await;
    drop(call);
    let loaded = cache.get::<u32>("home").await.unwrap().unwrap();
    assert_eq!(*loaded, 1);
    cache.remove("home").await.unwrap();
    let call = fleet.call(&cache, SECOND).wait_at_most(2 * SECOND);
    assert_eq!(*call.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_to_be_kept_for_ever_is_kept_for_a_year() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let for_ever = |_: &u32| Lifetime::For(Duration::MAX, Duration::MAX);
    let call = fleet.call(&cache, SECOND).lifetime(for_ever);
    assert_eq!(*call.await.unwrap(), 1);
    sleep(SECOND).await;
    assert_eq!(fleet.read(&cache).await, (1, Origin::Fresh));
    fleet.clock.suspend(366 * 24 * 3_600 * SECOND);
    let got = cache.get::<u32>("home").await.unwrap().unwrap();
    assert_eq!((*got, got.origin()), (1, Origin::Stale));
}

#[tokio::test(start_paused = true)]
async fn loads_that_wait_for_each_other_end_as_busy() {
    let fleet = Fleet::new();
    let cache = fleet
        .cache()
        .policy(Policy::default().wait_at_most(5 * SECOND));
    let crossing = |own: &'static str, its: &'static str| {
        let inner = cache.clone();
        let loader = move || async move {
            sleep(SECOND).await;
            let other = inner.get_or_refresh(its, || async { Ok::<u32, String>(1) });
            other.await.map(|got| *got + 1)
        };
        cache
            .get_or_refresh(own, loader)
            .wait_at_most(20 * SECOND)
            .into_future()
    };
    let both = async { tokio::join!(crossing("a", "b"), crossing("b", "a")) };
    let (one, two) = timeout(7 * SECOND, both).await.unwrap();
    for failed in [one, two] {
        let failed = load_failed(failed);
        assert!(failed.text.contains("still being loaded"), "{failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn must_be_fresh_catches_up_with_constant_invalidation() {
    let fleet = Fleet::new();
    let caches = [fleet.cache(), fleet.cache()];
    let (writer, mut calls) = (fleet.cache(), tokio::task::JoinSet::new());
    for at in 0..200 {
        let call = fleet.call(&caches[at % 2], 2 * SECOND).must_be_fresh();
        calls.spawn(async move {
            let begun = Instant::now();
            (call.await.unwrap(), begun.elapsed())
        });
        sleep(SECOND / 10).await;
        writer.invalidate("home").await.unwrap();
    }
    while let Some(ended) = calls.join_next().await {
        let (got, took) = ended.unwrap();
        assert!(
            matches!(got.origin(), Origin::Loaded | Origin::Waited),
            "{got:?}"
        );
        // The longest wait is for a load that has begun, and for one more load.
        assert!(took <= 5 * SECOND, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_could_not_be_read_again_is_given_and_not_stored() {
    let fleet = Fleet::new();
    let cache = fleet.cache().raw();
    let size = leasehold_cache::MOST_BYTES;
    for (more, stored) in [(1, false), (0, true)] {
        let loader = move || async move { Ok::<_, String>(vec![7_u8; size + more]) };
        let got = cache.get_or_refresh("big", loader).await.unwrap();
        assert_eq!(got.len(), size + more);
        sleep(SECOND).await;
        assert_eq!(cache.get::<Vec<u8>>("big").await.unwrap().is_some(), stored);
    }
}

//! Several entries in one call.

use std::collections::HashMap;
use std::sync::Mutex;

use leasehold_cache::BatchResult;

use super::*;

type Asked = Arc<Mutex<Vec<Vec<String>>>>;

async fn lengths(cache: &Cache, asked: &Asked, keys: &[&str]) -> Result<BatchResult<usize>, Error> {
    let asked = asked.clone();
    let loader = move |mut missing: Vec<String>| {
        let asked = asked.clone();
        async move {
            missing.sort();
            asked.lock().unwrap().push(missing.clone());
            sleep(SECOND).await;
            let known = missing.into_iter().filter(|key| key != "unknown");
            Ok::<HashMap<String, usize>, String>(
                known.map(|key| (key.clone(), key.len())).collect(),
            )
        }
    };
    cache.get_many_or_refresh(keys, loader).await
}

#[tokio::test(start_paused = true)]
async fn what_falls_to_a_caller_is_loaded_by_one_call() {
    let fleet = Fleet::new();
    let (cache, other) = (fleet.cache(), fleet.cache());
    let (asked, elsewhere) = (Asked::default(), Asked::default());
    lengths(&cache, &asked, &["a"]).await.unwrap();
    let (one, two) = tokio::join!(
        lengths(&cache, &asked, &["a", "bb", "ccc", "bb"]),
        lengths(&other, &elsewhere, &["a", "ccc", "dddd"]),
    );
    let (one, two) = (one.unwrap().all().unwrap(), two.unwrap().all().unwrap());
    assert_eq!(one.len(), 3);
    assert_eq!((*one["a"], *one["bb"], *one["ccc"]), (1, 2, 3));
    assert_eq!((*two["a"], *two["ccc"], *two["dddd"]), (1, 3, 4));
    assert_eq!(one["a"].origin(), Origin::Fresh);
    assert_eq!(*asked.lock().unwrap(), [vec!["a"], vec!["bb", "ccc"]]);
    assert_eq!(*elsewhere.lock().unwrap(), [vec!["dddd"]]);
}

#[tokio::test(start_paused = true)]
async fn what_the_loader_does_not_bring_has_no_value() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let asked = Asked::default();
    let many = lengths(&cache, &asked, &["unknown", "a"]).await.unwrap();
    assert_eq!(many.values.keys().collect::<Vec<_>>(), ["a"]);
    assert!(many.failed.is_empty());
    // The call without a value leaves no lease behind, so the next caller loads at once.
    let begun = tokio::time::Instant::now();
    let call = fleet.call_for("unknown", &fleet.cache(), SECOND);
    call.await.unwrap();
    assert_eq!(begun.elapsed(), SECOND);
    assert!(
        lengths(&cache, &asked, &[])
            .await
            .unwrap()
            .values
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn stale_values_are_refreshed_by_one_call_in_the_background() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let asked = Asked::default();
    lengths(&cache, &asked, &["a", "bb"]).await.unwrap();
    sleep(61 * SECOND).await;
    let many = lengths(&cache, &asked, &["a", "bb"]).await.unwrap();
    assert!(
        many.values
            .values()
            .all(|got| got.origin() == Origin::Stale)
    );
    sleep(2 * SECOND).await;
    let many = lengths(&cache, &asked, &["a", "bb"]).await.unwrap();
    assert!(
        many.values
            .values()
            .all(|got| got.origin() == Origin::Fresh)
    );
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_one_is_refused_before_anything_happens() {
    let fleet = Fleet::new();
    let asked = Asked::default();
    let refused = lengths(&fleet.cache(), &asked, &["a", "b\n"])
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("cache key"), "{refused}");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_panics_before_its_first_wait_fails_every_key() {
    let cache = Fleet::new().cache();
    let panics = |missing: Vec<String>| {
        assert!(missing.is_empty(), "out of cheese");
        async { Ok::<HashMap<String, u32>, String>(HashMap::new()) }
    };
    let many = cache
        .get_many_or_refresh(["a", "bb", "ccc"], panics)
        .await
        .unwrap();
    assert!(many.values.is_empty());
    assert_eq!(many.failed.len(), 3, "{many:?}");
    assert!(
        many.failed
            .values()
            .all(|failed| matches!(failed, Error::Load(_))),
        "{many:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_asks_for_any_of_its_keys_is_told_so_at_once() {
    let cache = Fleet::new().cache();
    for asked in ["a", "bb", "ccc"] {
        let inner = cache.clone();
        let loader = move |missing: Vec<String>| {
            let own = inner.get_or_refresh(asked, || async { Ok::<u32, String>(1) });
            async move {
                let refused = own.await.unwrap_err().to_string();
                Ok::<_, String>(
                    missing
                        .into_iter()
                        .map(|key| (key, refused.clone()))
                        .collect(),
                )
            }
        };
        let begun = tokio::time::Instant::now();
        let many: BatchResult<String> = cache
            .get_many_or_refresh(["a", "bb", "ccc"], loader)
            .await
            .unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "{asked}");
        let all = many.all().unwrap();
        assert!(
            all.values()
                .all(|refused| refused.contains("its own loader")),
            "{all:?}"
        );
        for key in ["a", "bb", "ccc"] {
            cache.remove(key).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_share_keys_do_not_wait_for_each_other_to_begin() {
    let fleet = Fleet::new();
    let caches = [(); 3].map(|()| fleet.cache());
    let keys: Vec<String> = (0..60).map(|at| format!("key:{at:02}")).collect();
    let asked = Asked::default();
    let begun = tokio::time::Instant::now();
    let calls = (0..12).map(|at| {
        let mut some: Vec<&str> = keys
            .iter()
            .map(String::as_str)
            .skip(at)
            .step_by(1 + at % 4)
            .collect();
        if at % 2 == 1 {
            some.reverse();
        }
        let (cache, asked) = (&caches[at % 3], &asked);
        async move { (some.len(), lengths(cache, asked, &some).await) }
    });
    for (count, many) in futures_util::future::join_all(calls).await {
        assert_eq!(many.unwrap().all().unwrap().len(), count);
    }
    assert!(
        begun.elapsed() <= SECOND + Duration::from_millis(20),
        "{:?}",
        begun.elapsed()
    );
    let mut loaded: Vec<String> = asked.lock().unwrap().concat();
    loaded.sort();
    assert_eq!(loaded, keys);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_are_one_call() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    let keys: Vec<String> = (0..10_000).map(|at| format!("key:{at}")).collect();
    let keys: Vec<&str> = keys.iter().chain(&keys).map(String::as_str).collect();
    let asked = Asked::default();
    let many = lengths(&cache, &asked, &keys).await.unwrap();
    assert_eq!(many.all().unwrap().len(), 10_000);
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_another_loads_or_failed_to_load_holds_up_no_other() {
    let fleet = Fleet::new();
    let cache = fleet.cache();
    // The other call is in another process first, and then in this one.
    for other in [fleet.cache(), cache.clone()] {
        holds_up_no_other(&fleet, &cache, &other).await;
        for key in ["a", "bb", "ccc"] {
            cache.remove(key).await.unwrap();
        }
        sleep(60 * SECOND).await;
    }
}

async fn holds_up_no_other(fleet: &Fleet, cache: &Cache, other: &Cache) {
    let elsewhere = fleet.call_for("bb", other, 10 * SECOND);
    let elsewhere = tokio::spawn(elsewhere.into_future());
    let fails = other.get_or_refresh("ccc", || async { Err::<u32, _>("down") });
    let fails = fails.policy(Policy::default().back_off(20 * SECOND));
    assert!(matches!(fails.await, Err(Error::Load(_))));
    let asked = Asked::default();
    let (reader, loads) = (cache.clone(), asked.clone());
    let begun = tokio::time::Instant::now();
    let call = tokio::spawn(async move { lengths(&reader, &loads, &["a", "bb", "ccc"]).await });
    sleep(SECOND + Duration::from_millis(1)).await;
    let stored = cache.get::<usize>("a").await.unwrap();
    assert_eq!(stored.map(|got| *got), Some(1));
    assert_eq!(*asked.lock().unwrap(), [vec!["a"]]);
    let many = call.await.unwrap().unwrap();
    assert_eq!(*many.values["a"], 1);
    assert!(matches!(many.failed["ccc"], Error::Load(_)), "{many:?}");
    assert!(begun.elapsed() <= 10 * SECOND, "{:?}", begun.elapsed());
    let theirs = usize::try_from(*elsewhere.await.unwrap().unwrap()).unwrap();
    assert_eq!(
        (*many.values["bb"], many.values["bb"].origin()),
        (theirs, Origin::Waited)
    );
}

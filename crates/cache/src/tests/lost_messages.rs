//! Answers, pushes and connections that are lost: no lease stays behind, and each waiter is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::entries::EntryListener;
use leasehold_core::cache::{Reply, Step};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Lost, Network, SECOND, Scene, shared_loads};
use crate::{Cache, Error, Lifetime, Policy};

#[derive(Clone, Copy, Default)]
struct Delays {
    /// Of the reply that a value is fresh.
    fresh: Duration,
    commit: Duration,
    invalidate: Duration,
}

impl Scene {
    /// The cache of a new client that loses the answers to `count` such steps. A lost commit does not reach the store, which carries out
    /// all other steps.
    fn lossy(&self, count: u32, is_lost: fn(&Step) -> bool) -> Cache {
        let left = AtomicU32::new(count);
        let less = |left: u32| left.checked_sub(1);
        let loses = move |step: &Step| {
            let taken =
                |left: &AtomicU32| left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            if !is_lost(step) || taken(&left).is_err() {
                return Lost::Nothing;
            }
            match step {
                Step::Commit(_) => Lost::Request,
                _ => Lost::Reply,
            }
        };
        Network::cache(&self.client(), |_, _| Duration::ZERO, loses)
    }

    /// The cache of a new client with a slow network.
    fn slow(&self, delays: Delays) -> Cache {
        let late = move |step: Option<&Step>, reply: Option<&Reply>| match (step, reply) {
            (_, Some(Reply::Fresh(_))) => delays.fresh,
            (Some(Step::Commit(_)), None) => delays.commit,
            (Some(Step::Invalidate { .. }), None) => delays.invalidate,
            _ => Duration::ZERO,
        };
        Network::cache(&self.client(), late, |_| Lost::Nothing)
    }

    /// Reads the value. A load takes the time `takes`, under a lease that outlasts the test. Its value is the number of loads so far.
    async fn read(&self, cache: &Cache, takes: Duration) -> Result<u32, Error> {
        let loads = self.loads.clone();
        let loader = move || async move {
            let load = loads.fetch_add(1, Ordering::SeqCst) + 1;
            sleep(takes).await;
            Ok::<u32, String>(load)
        };
        let policy = Policy::default()
            .lease(3_600 * SECOND)
            .wait_at_most(60 * SECOND);
        let got = cache.get_or_refresh("home", loader).policy(policy).await?;
        Ok(*got)
    }
}

#[tokio::test(start_paused = true)]
async fn a_leave_to_load_whose_answer_is_lost_is_asked_for_again() {
    let scene = Scene::new();
    let cache = scene.lossy(2, |step| matches!(step, Step::Begin(_)));
    assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leave_to_load_that_nobody_knows_of_is_given_back() {
    let scene = Scene::new();
    let cache = scene.lossy(3, |step| matches!(step, Step::Begin(_)));
    let failed = scene.read(&cache, SECOND).await;
    assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
    let begun = scene.clock.now();
    assert_eq!(scene.read(&scene.cache(), SECOND).await.unwrap(), 1);
    assert_eq!(scene.clock.now().since(begun), SECOND);
}

#[tokio::test(start_paused = true)]
async fn unstorable_value_serves_its_caller_and_ends_lease() {
    let scene = Scene::new();
    let cache = scene.lossy(3, |step| matches!(step, Step::Commit(_)));
    let begun = scene.clock.now();
    assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
    assert!(scene.clock.now().since(begun) <= SECOND + SECOND / 10);
    sleep(SECOND).await;
    let begun = scene.clock.now();
    assert_eq!(scene.read(&scene.cache(), SECOND).await.unwrap(), 2);
    assert_eq!(scene.clock.now().since(begun), SECOND);
}

#[tokio::test(start_paused = true)]
async fn loaded_value_is_stored_or_caller_waited_100_ms() {
    for (takes, waits) in [(0, 0), (90, 90), (110, 100), (3_600_000, 100)] {
        let [takes, waits] = [takes, waits].map(Duration::from_millis);
        let scene = Scene::new();
        let cache = scene.slow(Delays {
            commit: takes,
            ..Delays::default()
        });
        let begun = scene.clock.now();
        assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
        assert_eq!(scene.clock.now().since(begun), SECOND + waits);
        let there = scene.cache().get::<u32>("home").await.unwrap();
        assert_eq!(there.map(|got| *got), (takes == waits).then_some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_value_to_be_stored_has_it_by_its_limit() {
    let scene = Scene::new();
    let hour = 3_600 * SECOND;
    let cache = scene.slow(Delays {
        commit: hour,
        invalidate: hour,
        ..Delays::default()
    });
    let loader = || async {
        sleep(SECOND).await;
        Ok::<u32, String>(1)
    };
    let limit = SECOND + SECOND / 20;
    let policy = || Policy::default().wait_at_most(limit).must_be_fresh(true);
    let begun = scene.clock.now();
    let (one, two) = tokio::join!(
        (cache.get_or_refresh("home", loader).policy(policy())).into_future(),
        (cache.get_or_refresh("home", loader).policy(policy())).into_future(),
    );
    assert_eq!((*one.unwrap(), *two.unwrap()), (1, 1));
    assert_eq!(scene.clock.now().since(begun), limit);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_was_there_to_be_removed() {
    let scene = Scene::new();
    let cache = scene.slow(Delays {
        invalidate: 3_600 * SECOND,
        ..Delays::default()
    });
    assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
    scene.cache().invalidate("home").await.unwrap();
    let begun = scene.clock.now();
    let not_kept = cache.get_or_refresh("home", || async { Ok::<u32, String>(2) });
    let not_kept = not_kept.lifetime(|_| Lifetime::NotStored).must_be_fresh();
    assert_eq!(*not_kept.await.unwrap(), 2);
    assert_eq!(scene.clock.now().since(begun), SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn who_waits_asks_again_over_a_new_connection() {
    let scene = Arc::new(Scene::new());
    let (loads, waits) = (scene.cache(), scene.cache());
    let mut calls = JoinSet::new();
    for (cache, takes) in [(loads, 30 * SECOND), (waits.clone(), SECOND)] {
        let scene = scene.clone();
        calls.spawn(async move { scene.read(&cache, takes).await.unwrap() });
        sleep(Duration::from_millis(1)).await;
    }
    // The store loses the lease of the load and sends no message about that.
    scene.memory.clear();
    let begun = scene.clock.now();
    waits.guard.load_ended(None);
    assert_eq!(calls.join_next().await.unwrap().unwrap(), 2);
    assert_eq!(scene.clock.now().since(begun), SECOND);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_once_notices_may_have_been_missed() {
    let scene = Scene::new();
    let cache = scene.cache();
    assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
    sleep(SECOND).await;
    for _ in 0..2 {
        assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
    }
    scene.memory.clear();
    assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 1);
    cache.guard.changed(None);
    assert_eq!(scene.read(&cache, SECOND).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_lost_its_lease_takes_no_other_along_when_it_ends() {
    let scene = Arc::new(Scene::new());
    let client = scene.client();
    let cache = Cache::new(&client);
    let mut calls = JoinSet::new();
    // The client renews only the lease of the second load.
    for (takes, renewed) in [(10, Duration::ZERO), (30, 60 * SECOND)] {
        let loader = move || async move {
            sleep(takes * SECOND).await;
            Ok::<u64, String>(0)
        };
        let call = cache.get_or_refresh("home", loader);
        let policy = Policy::default().load_at_most(renewed).lease(SECOND);
        calls.spawn(call.policy(policy).into_future());
        sleep(2 * SECOND).await;
    }
    assert!(calls.join_next().await.unwrap().is_ok());
    sleep(SECOND).await;
    assert_eq!(shared_loads(&cache), 1);
    client.close().await;
    assert_eq!(shared_loads(&cache), 0);
}

#[tokio::test(start_paused = true)]
async fn answer_under_way_is_not_fresh_after_invalidation() {
    let scene = Arc::new(Scene::new());
    let other = scene.cache();
    let cache = scene.slow(Delays {
        fresh: SECOND,
        ..Delays::default()
    });
    let mut calls = JoinSet::new();
    for cache in [other.clone(), cache.clone()] {
        let scene = scene.clone();
        calls.spawn(async move { scene.read(&cache, SECOND).await.unwrap() });
        sleep(Duration::from_millis(1)).await;
    }
    sleep(SECOND + SECOND / 2).await;
    // The store has told the waiting client that the value is fresh, but this reply is still on its way.
    other.invalidate("home").await.unwrap();
    let loader = || async { Ok::<u32, String>(7) };
    let late = cache.get_or_refresh("home", loader);
    assert_eq!(*late.must_be_fresh().await.unwrap(), 7);
    while let Some(early) = calls.join_next().await {
        assert_eq!(early.unwrap(), 1);
    }
}

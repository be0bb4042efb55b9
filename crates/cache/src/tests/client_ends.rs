//! Clients that end while a shared load is under way: it keeps the client's thread no longer than its loader lives.

use std::any::Any;
use std::future::pending;
use std::sync::Weak;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{SECOND, Scene, shared_loads};
use crate::{Cache, Policy};

/// A weak reference to a client, without its handles.
type Life = Weak<dyn Any + Send + Sync>;

impl Scene {
    /// Starts a call of a new client, ends the call after 100 ms, and drops the client.
    async fn gone<F>(&self, loader: impl FnOnce() -> F + Send + 'static) -> Life
    where
        F: Future<Output = Result<u32, String>> + Send + 'static,
    {
        let cache = self.cache();
        let life = cache.guard.loads.entries.life();
        let policy = Policy::default().back_off(20 * SECOND);
        let call = cache.get_or_refresh("home", loader).policy(policy);
        let mut calls = JoinSet::new();
        calls.spawn(call.into_future());
        sleep(SECOND / 10).await;
        calls.shutdown().await;
        drop(cache);
        life
    }
}

async fn slow() -> Result<u32, String> {
    sleep(10 * SECOND).await;
    Ok(1)
}

async fn is_gone_within(life: &Life, limit: Duration) -> bool {
    sleep(limit + Duration::from_millis(1)).await;
    life.strong_count() == 0
}

async fn read(cache: &Cache) -> u32 {
    *cache.get_or_refresh("home", slow).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_another_goes_at_once() {
    let scene = Scene::new();
    let other = scene.cache();
    let mut loads = JoinSet::new();
    loads.spawn(async move { read(&other).await });
    sleep(SECOND / 10).await;
    let gone = scene.gone(slow).await;
    assert!(is_gone_within(&gone, Duration::ZERO).await);
    assert_eq!(loads.join_next().await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_a_failing_source_alone_goes_at_once() {
    let scene = Scene::new();
    let gone = scene.gone(|| async { Err("down".into()) }).await;
    assert!(is_gone_within(&gone, Duration::ZERO).await);
}

#[tokio::test(start_paused = true)]
async fn one_that_loads_stores_the_value_and_goes() {
    let scene = Scene::new();
    let gone = scene.gone(slow).await;
    assert!(!is_gone_within(&gone, 9 * SECOND).await);
    assert!(is_gone_within(&gone, SECOND).await);
    let stored = scene.cache().get::<u32>("home").await.unwrap();
    assert_eq!(stored.map(|got| *got), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_hangs_keeps_it_until_its_runtime_ends() {
    let scene = Scene::new();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let theirs = runtime();
    let cache = scene.cache();
    let life = cache.guard.loads.entries.life();
    let hangs = cache.get_or_refresh("home", pending::<Result<u32, String>>);
    let call = theirs.spawn(hangs.into_future());
    while shared_loads(&cache) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    call.abort();
    drop(cache);
    assert!(!is_gone_within(&life, 200 * SECOND).await);
    theirs.shutdown_background();
    while life.strong_count() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(read(&scene.cache()).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_only_waits_ends_with_its_last_caller() {
    let scene = Scene::new();
    let (other, cache) = (scene.cache(), scene.cache());
    let mut calls = JoinSet::new();
    calls.spawn(async move { read(&other).await });
    sleep(SECOND / 10).await;
    let mut waits = JoinSet::new();
    let waiting = cache.clone();
    waits.spawn(async move { read(&waiting).await });
    sleep(SECOND).await;
    assert_eq!(shared_loads(&cache), 1);
    waits.shutdown().await;
    sleep(SECOND).await;
    assert_eq!(shared_loads(&cache), 0);
    assert_eq!(calls.join_next().await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn failure_is_reported_without_store_during_back_off() {
    let scene = Scene::new();
    let cache = scene.cache();
    let policy = Policy::default().back_off(20 * SECOND);
    let fails = || async { Err::<u32, _>("down") };
    let failed = cache.get_or_refresh("home", fails).policy(policy);
    assert!(failed.await.is_err());
    // The store forgets the failure, so that only the client remembers it.
    scene.memory.clear();
    for _ in 0..9 {
        assert!(cache.get_or_refresh("home", slow).await.is_err());
        sleep(SECOND).await;
    }
    sleep(11 * SECOND).await;
    assert_eq!(read(&cache).await, 1);
    assert_eq!(shared_loads(&cache), 0);
}

//! Clients that end while a shared load is under way: it keeps the client's thread no longer than its loader lives.

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cache::Cache;
use crate::cache::Policy;
use crate::client::Client;
use crate::clock::Clock;
use crate::lease::Engine;
use crate::store::memory::Memory;

const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    clock: Clock,
    memory: Memory,
}

impl Scene {
    fn new() -> Self {
        let clock = Clock::virtual_time();
        let memory = Memory::new(clock.clone());
        Self { clock, memory }
    }

    fn client(&self) -> Client {
        let builder = Client::builder().clock(self.clock.clone());
        builder
            .cache_in_process(10_000, SECOND)
            .embedded(&self.memory)
            .unwrap()
    }

    /// Starts a call of a new client, ends the call after 100 ms, and drops the client. Returns a weak reference to the client's engine.
    async fn gone<F>(&self, loader: impl FnOnce() -> F + Send + 'static) -> Weak<Engine>
    where
        F: Future<Output = Result<u32, String>> + Send + 'static,
    {
        let client = self.client();
        let engine = Arc::downgrade(&client.engine);
        let policy = Policy::default().back_off(20 * SECOND);
        let call = client.cache().get_or_refresh("home", loader).policy(policy);
        let mut calls = JoinSet::new();
        calls.spawn(call.into_future());
        sleep(SECOND / 10).await;
        calls.shutdown().await;
        drop(client);
        engine
    }
}

async fn slow() -> Result<u32, String> {
    sleep(10 * SECOND).await;
    Ok(1)
}

async fn is_gone_within(engine: &Weak<Engine>, limit: Duration) -> bool {
    sleep(limit + Duration::from_millis(1)).await;
    engine.strong_count() == 0
}

async fn read(cache: &Cache) -> u32 {
    *cache.get_or_refresh("home", slow).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_another_goes_at_once() {
    let scene = Scene::new();
    let other = scene.client();
    let mut loads = JoinSet::new();
    loads.spawn(async move { read(&other.cache()).await });
    sleep(SECOND / 10).await;
    let engine = scene.gone(slow).await;
    assert!(is_gone_within(&engine, Duration::ZERO).await);
    assert_eq!(loads.join_next().await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_a_failing_source_alone_goes_at_once() {
    let scene = Scene::new();
    let engine = scene.gone(|| async { Err("down".into()) }).await;
    assert!(is_gone_within(&engine, Duration::ZERO).await);
}

#[tokio::test(start_paused = true)]
async fn one_that_loads_stores_the_value_and_goes() {
    let scene = Scene::new();
    let engine = scene.gone(slow).await;
    assert!(!is_gone_within(&engine, 9 * SECOND).await);
    assert!(is_gone_within(&engine, SECOND).await);
    let stored = scene.client().cache().get::<u32>("home").await.unwrap();
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
    let client = scene.client();
    let engine = Arc::downgrade(&client.engine);
    let hangs = client
        .cache()
        .get_or_refresh("home", pending::<Result<u32, String>>);
    let call = theirs.spawn(hangs.into_future());
    while client.guard.inner().shared_loads().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    call.abort();
    drop(client);
    assert!(!is_gone_within(&engine, 200 * SECOND).await);
    theirs.shutdown_background();
    while engine.strong_count() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(read(&scene.client().cache()).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_flight_that_only_waits_ends_with_its_last_caller() {
    let scene = Scene::new();
    let (other, client) = (scene.client(), scene.client());
    let mut calls = JoinSet::new();
    calls.spawn(async move { read(&other.cache()).await });
    sleep(SECOND / 10).await;
    let mut waits = JoinSet::new();
    let cache = client.cache();
    waits.spawn(async move { read(&cache).await });
    sleep(SECOND).await;
    let guard = client.guard.inner();
    assert_eq!(guard.shared_loads().len(), 1);
    waits.shutdown().await;
    sleep(SECOND).await;
    assert!(guard.shared_loads().is_empty());
    assert_eq!(calls.join_next().await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn failure_is_reported_without_store_during_back_off() {
    let scene = Scene::new();
    let client = scene.client();
    let policy = Policy::default().back_off(20 * SECOND);
    let fails = || async { Err::<u32, _>("down") };
    let failed = client.cache().get_or_refresh("home", fails).policy(policy);
    assert!(failed.await.is_err());
    // The store forgets the failure, so that only the client remembers it.
    scene.memory.clear();
    for _ in 0..9 {
        assert!(client.cache().get_or_refresh("home", slow).await.is_err());
        sleep(SECOND).await;
    }
    sleep(11 * SECOND).await;
    assert_eq!(read(&client.cache()).await, 1);
    assert!(client.guard.inner().shared_loads().is_empty());
}

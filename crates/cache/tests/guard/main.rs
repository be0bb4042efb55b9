//! The cache guard from the user's point of view, on virtual time and a store in memory. `tests/redis` tests it on Redis.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test measures, and starts callers"
)]

mod blocking;
mod choices;
#[path = "../../../leasehold/tests/common/mod.rs"]
mod common;
mod edges;
mod failing;
mod layer;
mod many;
mod reading;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Clock, Memory};
use leasehold_cache::{Cache, Codec, Error, GetOrRefresh, Json, LoadFailed, Origin, Policy};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

/// Several processes that share a store, and a source that counts its reads.
struct Fleet {
    memory: Memory,
    clock: Clock,
    loads: Arc<AtomicU32>,
}

impl Fleet {
    fn new() -> Self {
        let clock = Clock::virtual_time();
        Self {
            memory: Memory::new(clock.clone()),
            clock,
            loads: Arc::default(),
        }
    }

    /// Another process. Values are fresh for 60 s and stale for 600 more, without jitter and early refreshes.
    fn cache(&self) -> Cache {
        let policy = Policy::default().jitter(0.0).eagerness(0.0);
        Cache::new(&self.client()).policy(policy)
    }

    fn client(&self) -> Client {
        let builder = Client::builder().clock(self.clock.clone());
        builder.embedded(&self.memory).unwrap()
    }

    fn call<C: Codec<u32>>(&self, cache: &Cache<C>, takes: Duration) -> GetOrRefresh<u32, C> {
        self.call_for("home", cache, takes)
    }

    /// A call whose loader takes this long and returns the number of loads so far.
    fn call_for<C: Codec<u32>>(
        &self,
        key: &str,
        cache: &Cache<C>,
        takes: Duration,
    ) -> GetOrRefresh<u32, C> {
        let loads = self.loads.clone();
        let loader = move || async move {
            let load = loads.fetch_add(1, Ordering::SeqCst) + 1;
            sleep(takes).await;
            Ok::<_, String>(load)
        };
        cache.get_or_refresh(key, loader)
    }

    /// A call for "home" whose loader fails.
    fn failing(&self, cache: &Cache) -> GetOrRefresh<u32, Json> {
        let loads = self.loads.clone();
        let loader = move || async move {
            loads.fetch_add(1, Ordering::SeqCst);
            sleep(SECOND / 10).await;
            Err("the database is down")
        };
        cache.get_or_refresh("home", loader)
    }

    /// Reads "home", with a load of one second if it has to.
    async fn read<C: Codec<u32>>(&self, cache: &Cache<C>) -> (u32, Origin) {
        let got = self.call(cache, SECOND).await.unwrap();
        (*got, got.origin())
    }

    fn loads(&self) -> u32 {
        self.loads.load(Ordering::SeqCst)
    }
}

/// The failure of the load that this call waited for.
#[track_caller]
fn load_failed(result: Result<impl std::fmt::Debug, Error>) -> LoadFailed {
    match result {
        Err(Error::Load(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

//! The cache guard from the user's point of view, on virtual time and a store in memory. `tests/redis` tests it on Redis.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test measures, and starts callers"
)]

mod blocking;
mod choices;
mod edges;
mod failing;
mod late;
mod layer;
mod many;
mod reading;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Clock, Memory};
use leasehold_cache::{Cache, Policy};

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

    /// A loader that takes this long and returns the number of loads so far.
    fn slow(
        &self,
        takes: Duration,
    ) -> impl FnOnce() -> std::pin::Pin<Box<dyn Future<Output = Result<u32, String>> + Send>>
    + Send
    + 'static {
        let loads = self.loads.clone();
        move || {
            Box::pin(async move {
                let load = loads.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::time::sleep(takes).await;
                Ok(load)
            })
        }
    }

    fn loads(&self) -> u32 {
        self.loads.load(Ordering::SeqCst)
    }
}

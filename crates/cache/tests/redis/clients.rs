//! Clients in this process, with one time with their server, which only the test lets pass.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_cache::{Cache, Cached, Error, Policy};
use testkit::{RedisServer, TestTime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{LONG, TTL, eventually, test_time, timed};

/// The lease of a load.
pub(crate) const LEASE: std::time::Duration = TTL;

const KEY: &str = "hot";

pub(crate) struct Clients {
    pub(crate) server: RedisServer,
    pub(crate) time: TestTime,
    caches: Vec<Cache>,
    loads: Arc<AtomicU64>,
}

/// A load of one of them that has begun.
pub(crate) struct RunningLoad {
    end: oneshot::Sender<()>,
    call: JoinHandle<Result<Cached<u64>, Error>>,
}

impl RunningLoad {
    /// Lets the load return its value.
    pub(crate) fn ends(self) -> JoinHandle<Result<Cached<u64>, Error>> {
        self.end.send(()).expect("it waits for this");
        self.call
    }
}

impl Clients {
    pub(crate) async fn connect(count: usize) -> Self {
        let server = RedisServer::builder().virtual_clock().start();
        let (time, clock) = test_time(slice::from_ref(&server));
        let mut caches = Vec::new();
        for _ in 0..count {
            let client = timed(&clock).connect(&server.url()).await;
            caches.push(Cache::new(&client.expect("it is up")).policy(policy()));
        }
        Self {
            server,
            time,
            caches,
            loads: Arc::default(),
        }
    }

    /// The number of loads that have begun.
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::SeqCst)
    }

    /// Lets a client ask for the entry with a loader that returns `value` when the test says so.
    pub(crate) fn asks(&self, client: usize, value: u64, policy: Policy) -> RunningLoad {
        let (end, ends) = oneshot::channel();
        let loads = self.loads.clone();
        let load = move || async move {
            loads.fetch_add(1, Ordering::SeqCst);
            ends.await.map(|()| value)
        };
        let call = self.caches[client].get_or_refresh(KEY, load);
        let call = tokio::spawn(call.policy(policy).into_future());
        RunningLoad { end, call }
    }

    /// A load that has begun.
    pub(crate) async fn load(&self, client: usize, value: u64) -> RunningLoad {
        let before = self.loads();
        let load = self.asks(client, value, policy());
        let begun = eventually("it loads", async || self.loads() > before);
        begun.await;
        load
    }

    /// A read that must not load.
    pub(crate) fn reader(
        &self,
        client: usize,
    ) -> impl Future<Output = Result<Cached<u64>, Error>> + Send + 'static {
        let loads = self.loads.clone();
        let load = move || async move {
            loads.fetch_add(1, Ordering::SeqCst);
            Err::<u64, _>("a second load".to_owned())
        };
        let call = self.caches[client].get_or_refresh(KEY, load).into_future();
        async move { timeout(LONG, call).await.expect("an answer") }
    }

    /// The number of clients that wait for the entry, as the server knows them.
    pub(crate) fn waiters(&self) -> usize {
        let control = self.server.cli(&["HKEYS", "{hot}:lh-cache"]);
        let fields = control.array().iter();
        fields
            .filter(|field| field.text().starts_with("w:"))
            .count()
    }

    /// Lets a third of the lease pass, and waits until the client that loads has renewed it.
    pub(crate) async fn renews(&self) {
        let before = self.lease_ends();
        let renewed = async || self.lease_ends() > before;
        self.time.pass(LEASE / 3);
        let soon = eventually("it is renewed", renewed);
        if timeout(LEASE / 100, soon).await.is_err() {
            // Its pause had not begun. With the second third, the renewal is due, and the lease not over.
            self.time.pass(LEASE / 3);
            eventually("it is renewed", renewed).await;
        }
    }

    /// The end of the lease of the load that goes on, by the server's clock in milliseconds.
    pub(crate) fn lease_ends(&self) -> i64 {
        self.server.cli(&["HGET", "{hot}:lh-cache", "until"]).int()
    }
}

/// Waits in real time, which no test exceeds; all other times follow the clock.
pub(crate) fn policy() -> Policy {
    Policy::default()
        .jitter(0.0)
        .eagerness(0.0)
        .lease(LEASE)
        .load_at_most(100 * LEASE)
        .wait_at_most(10 * LONG)
}

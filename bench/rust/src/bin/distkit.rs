//! distkit's `Mutex`, which polls and renews each lease. All workers of the process share one connection.

use std::sync::Arc;
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::{LockGuardState, LockOptions, Mutex};
use leasehold_bench::{Peer, Section, drive, text};
use redis::aio::ConnectionManager;

#[derive(Clone)]
struct Distkit {
    connection: ConnectionManager,
    ttl: Duration,
}

impl Distkit {
    /// A mutex has an owner of its own: two workers of one key need two.
    fn mutex(&self, key: &str, ttl: Duration) -> Arc<Mutex> {
        // distkit refuses colons.
        let key = DistkitRedisKey::new_or_panic(key.replace(':', "-"));
        let options = LockOptions::builder(key, self.connection.clone()).ttl(ttl);
        Mutex::new(options.build())
    }
}

impl Peer for Distkit {
    type Lock = Arc<Mutex>;

    fn lock(&self, key: &str) -> Arc<Mutex> {
        self.mutex(key, self.ttl)
    }

    async fn cycle(&self, mutex: &mut Arc<Mutex>, section: &mut Section) -> Result<(), String> {
        let guard = mutex.lock().await.map_err(text)?;
        section.run().await;
        match guard.release().await.map_err(text)? {
            LockGuardState::Released => Ok(()),
            state => Err(format!("{state:?}")),
        }
    }

    async fn hold(&self, key: &str) {
        let mutex = self.mutex(key, Duration::from_secs(120));
        std::mem::forget(mutex.try_lock().await.expect("the lock is free"));
    }
}

fn main() {
    drive(async |_, load| {
        let client = redis::Client::open(load.url.as_str()).expect("a URL");
        let connection = client.get_connection_manager().await;
        Distkit {
            connection: connection.expect("redis-server answers"),
            ttl: load.ttl,
        }
    });
}

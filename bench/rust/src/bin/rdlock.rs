//! rdlock, which waits for keyspace notifications.

use std::time::Duration;

use leasehold_bench::{Peer, Section, drive, text};
use rdlock::RdLockConnectionManager;

#[derive(Clone)]
struct Rdlock {
    manager: RdLockConnectionManager,
    ttl_secs: u64,
}

impl Peer for Rdlock {
    type Lock = String;

    fn lock(&self, key: &str) -> String {
        key.to_owned()
    }

    async fn cycle(&self, key: &mut String, section: &mut Section) -> Result<(), String> {
        let mut lock = self.manager.new_basic_lock(key, self.ttl_secs);
        // rdlock's `lock` passes u64::MAX seconds, which overflows tokio's interval.
        let locked = lock.lock_timeout(Duration::from_secs(3600)).await;
        locked.map_err(text)?;
        section.run().await;
        lock.release().await.map_err(text)
    }

    async fn hold(&self, key: &str) {
        let mut lock = self.manager.new_basic_lock(key, 120);
        lock.try_lock().await.expect("the lock is free");
        std::mem::forget(lock);
    }
}

fn main() {
    drive(async |_, load| Rdlock {
        manager: RdLockConnectionManager::new(load.url.as_str())
            .await
            .expect("redis-server answers"),
        ttl_secs: load.ttl.as_secs().max(1),
    });
}

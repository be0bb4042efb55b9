//! rslock, with its own defaults.

use std::time::Duration;

use leasehold_bench::{Peer, Section, drive, text};
use rslock::LockManager;

#[derive(Clone)]
struct Rslock {
    manager: LockManager,
    ttl: Duration,
}

impl Peer for Rslock {
    type Lock = String;

    fn lock(&self, key: &str) -> String {
        key.to_owned()
    }

    async fn cycle(&self, key: &mut String, section: &mut Section) -> Result<(), String> {
        let guard = self.manager.acquire(key.as_bytes(), self.ttl).await;
        let guard = guard.map_err(text)?;
        section.run().await;
        guard.release().await;
        Ok(())
    }

    async fn hold(&self, key: &str) {
        let guard = self
            .manager
            .acquire(key.as_bytes(), Duration::from_secs(120))
            .await;
        std::mem::forget(guard.expect("the lock is free"));
    }
}

fn main() {
    drive(async |_, load| Rslock {
        manager: LockManager::new(load.urls.clone()),
        ttl: load.ttl,
    });
}

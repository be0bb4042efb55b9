//! A configuration that many read and one reloads. No reader sees a half of each.
//!
//! `cargo run --example config`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Error};
use tokio::time::sleep;

/// Two parts that belong together, as of two files.
#[derive(Default)]
struct Config([AtomicU64; 2]);

impl Config {
    /// Reads one part after the other.
    async fn read(&self) -> [u64; 2] {
        let first = self.0[0].load(Ordering::SeqCst);
        sleep(Duration::from_millis(1)).await;
        [first, self.0[1].load(Ordering::SeqCst)]
    }

    async fn reload(&self, version: u64) {
        self.0[0].store(version, Ordering::SeqCst);
        sleep(Duration::from_millis(1)).await;
        self.0[1].store(version, Ordering::SeqCst);
    }
}

async fn reads(client: Client, config: Arc<Config>) -> Result<u32, Error> {
    let lock = client.rw_lock("config");
    let mut torn = 0;
    for _ in 0..20 {
        let lease = lock.read().acquire().await?;
        let [first, second] = config.read().await;
        torn += u32::from(first != second);
        lease.release().await?;
    }
    Ok(torn)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let config = Arc::new(Config::default());
    let client = support::client().await?;
    let reader = |_| support::spawn(reads(client.clone(), config.clone()));
    let readers: Vec<_> = (0..8).map(reader).collect();
    for version in 1..=5 {
        let lease = client.rw_lock("config").write().acquire().await?;
        config.reload(version).await;
        println!("version {version}, under fence {}", lease.fence());
        lease.release().await?;
    }
    let mut torn = 0;
    for reader in readers {
        torn += reader.await.expect("no panic")?;
    }
    println!("{torn} torn reads of 160");
    client.close().await;
    Ok(())
}

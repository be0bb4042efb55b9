//! Leasehold. All workers of the process share one client.
//! `release=await` (default) or `release=drop`, which releases in the background; `linger_ms=N`.

use std::time::Duration;

use leasehold::{Client, Error, Mutex};
use leasehold_bench::{Peer, Section, drive};

#[derive(Clone)]
struct Leasehold {
    client: Client,
    ttl: Duration,
    linger: Duration,
    awaited: bool,
}

impl Peer for Leasehold {
    type Lock = Mutex;

    fn lock(&self, key: &str) -> Mutex {
        self.client.mutex(key).ttl(self.ttl).linger(self.linger)
    }

    async fn cycle(&self, lock: &mut Mutex, section: &mut Section) -> Result<(), String> {
        let say = |error: Error| error.to_string();
        let lease = lock.acquire().await.map_err(say)?;
        section.run().await;
        if self.awaited {
            lease.release().await.map_err(say)
        } else {
            drop(lease);
            Ok(())
        }
    }

    async fn hold(&self, key: &str) {
        let mutex = self.client.mutex(key).ttl(Duration::from_secs(120));
        std::mem::forget(mutex.acquire().await.expect("the lock is free"));
    }

    async fn close(&self) {
        self.client.close().await;
    }
}

fn main() {
    drive(async |args, load| Leasehold {
        client: Client::connect(&load.url)
            .await
            .expect("redis-server answers"),
        ttl: load.ttl,
        linger: args.millis("linger_ms", 0.0),
        awaited: match args.text("release") {
            None | Some("await") => true,
            Some("drop") => false,
            Some(other) => panic!("release={other}: await or drop"),
        },
    });
}

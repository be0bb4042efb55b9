//! Leasehold. All workers of the process share one client.
//! `release=await` (default) or `release=drop`, which releases in the background; `linger_ms=N`; `home=1` creates the client outside of
//! the workers' runtime, so the client's own thread does the I/O.

use std::time::Duration;

use leasehold::{Client, Mutex};
use leasehold_bench::{Peer, Section, drive, text};

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
        let lease = lock.acquire().await.map_err(text)?;
        section.run().await;
        if self.awaited {
            lease.release().await.map_err(text)
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

async fn connect(urls: &[String], home: bool) -> Client {
    let urls = urls.to_owned();
    let connect = async move || match &urls[..] {
        [url] => Client::connect(url).await,
        several => Client::connect_quorum(several).await,
    };
    let connected = if home {
        let elsewhere = move || leasehold_bench::runtime(1).block_on(connect());
        // A thread outside of all runtimes; the runtime inside it ends at once.
        let thread = std::thread::spawn(elsewhere);
        thread.join().expect("it does not panic")
    } else {
        connect().await
    };
    connected.expect("redis-server answers")
}

fn main() {
    drive(async |args, load| Leasehold {
        client: connect(&load.urls, args.text("home").is_some()).await,
        ttl: load.ttl,
        linger: args.millis("linger_ms", 0.0),
        awaited: match args.text("release") {
            None | Some("await") => true,
            Some("drop") => false,
            Some(other) => panic!("release={other}: await or drop"),
        },
    });
}

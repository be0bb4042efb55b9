//! Many leases at once, for several parts.

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold::kind::Kind;
use leasehold::{Client, Error, Lease, Lock, Mutex};
use leasehold_bench::{Args, Load, now_ns};

/// The number of concurrent requests.
pub(crate) const BATCH: usize = 500;

pub(crate) async fn connect(args: &Args) -> Client {
    // A machine with a hundred thousand leases or tasks may answer late.
    let client = Client::builder().request_timeout(Duration::from_secs(20));
    let connected = match &Load::new(args).urls[..] {
        [url] => client.connect(url).await,
        several => client.connect_quorum(several).await,
    };
    connected.expect("redis-server answers")
}

/// Acquires and releases a lock that nobody else wants. Returns the nanoseconds that it took.
pub(crate) async fn pair(mutex: &Mutex) -> u64 {
    let asked = now_ns();
    let lease = mutex.acquire().await.expect("nobody else wants it");
    lease.release().await.expect("it is held");
    now_ns() - asked
}

/// The n-th of many locks.
pub(crate) fn nth(client: &Client, number: usize) -> Mutex {
    client.mutex(format!("lock:{number}"))
}

/// Takes so many locks.
pub(crate) async fn take<K: Kind>(
    count: usize,
    ttl: Duration,
    lock: impl Fn(usize) -> Lock<K>,
) -> Vec<Lease<K>> {
    let lock = &lock;
    let mut leases = Vec::with_capacity(count);
    for first in (0..count).step_by(BATCH) {
        let batch = (first..count.min(first + BATCH))
            .map(|number| async move { lock(number).ttl(ttl).acquire().await });
        leases.extend(try_join_all(batch).await.expect("every lock is free"));
    }
    leases
}

pub(crate) async fn give_back<K: Kind>(leases: Vec<Lease<K>>) -> Result<(), Error> {
    let mut leases = leases.into_iter();
    loop {
        let batch: Vec<_> = leases.by_ref().take(BATCH).map(Lease::release).collect();
        if batch.is_empty() {
            return Ok(());
        }
        try_join_all(batch).await?;
    }
}

//! Whoever stops waiting, by dropping a future at any of its polls or with all of its runtime, leaves nothing behind.
//!
//! Leases here last for 30 s and a grant that nobody claims for 3 s, so that none of them can hide a leak: all must be
//! clean within [`SOON`].

mod acquiring;
#[cfg(feature = "cache")]
mod caching;
#[path = "../common/mod.rs"]
mod common;
mod ending;
mod holding;
mod least;
mod replies;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use common::{Place, TTL, look};
use leasehold::{Client, Lease, Snapshot};
use tokio::time::{sleep, timeout};

/// How soon all must be clean: a second, and another for a machine that is busy with other things.
const SOON: Duration = Duration::from_secs(2);

/// More polls than any future of the library needs.
const MANY: usize = 50;

/// Moments at which to drop a future while the client works on it behind: before the request, during it, after it.
const MOMENTS: [Duration; 10] = {
    let mut moments = [Duration::ZERO; 10];
    let mut at = 1;
    while at < moments.len() {
        moments[at] = Duration::from_micros(50 << (at - 1));
        at += 1;
    }
    moments
};

/// Polls `future` up to `n` times, but for the first only when it was woken, and drops it. What it gave, if it ended.
async fn poll_n_times_then_drop<F: Future>(n: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        polls += 1;
        if polls == n {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Polls `future` once, and drops it when `event` has come, without looking at it again.
async fn poll_once_then_drop_after<F: Future>(future: F, event: impl Future<Output = ()>) {
    let mut future = pin!(future);
    // A fast client may have answered by now: then what it gave is dropped as late.
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    event.await;
    drop(first);
}

/// One lock, the client under test, and an operator who looks on.
struct Scene {
    place: Place,
    client: Client,
    operator: Client,
}

impl Scene {
    async fn at(place: Place) -> Self {
        let (client, operator) = (place.client().await, place.client().await);
        Self {
            place,
            client,
            operator,
        }
    }

    fn mutex(&self) -> leasehold::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    /// The client's own lease.
    async fn lease(&self) -> Lease {
        common::take(&self.client, "m").await
    }

    /// A lease of someone else.
    async fn held_by_another(&self) -> Lease {
        common::take(&self.operator, "m").await
    }

    /// Waits until the operator sees this, but not for long.
    async fn shows(&self, what: &str, condition: impl Fn(&Snapshot) -> bool) {
        let looking = async {
            while !condition(&look(&self.operator, "m").await) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let shown = timeout(SOON, looking).await.is_ok();
        let seen = look(&self.operator, "m").await;
        assert!(shown, "not soon: {what}, but {seen:?}");
    }

    async fn shows_a_waiter(&self) {
        self.shows("someone waits", |seen| !seen.queue.is_empty())
            .await;
    }

    /// What was begun for the client so far has reached the store: it does one thing after another.
    async fn all_was_sent(&self) {
        look(&self.client, "m").await;
    }

    /// The lock is soon free, nobody waits for it, and it can be had.
    async fn is_free_soon(&self) {
        self.all_was_sent().await;
        let free = |seen: &Snapshot| seen.holder.is_none() && seen.queue.is_empty();
        self.shows("free, and nobody waits", free).await;
        let lease = common::take(&self.operator, "m").await;
        lease.release().await.expect("it is held");
    }

    /// Soon nobody waits, `held` is what it was, and after its release the lock is free.
    async fn waits_for_nobody_after(&self, held: Lease) {
        self.all_was_sent().await;
        let theirs = |seen: &Snapshot| {
            let holder = seen.holder.as_ref().and_then(|holder| holder.fence);
            holder == Some(held.fence()) && seen.queue.is_empty()
        };
        self.shows("still held, and nobody waits", theirs).await;
        held.release().await.expect("it is held");
        self.is_free_soon().await;
    }
}

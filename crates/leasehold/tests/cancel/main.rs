//! A caller may drop a future at any of its polls, or its whole runtime. This leaves nothing behind in the store.
//!
//! The clocks of most stores stand still here (see [`still`]), so no leak can hide: neither a lease nor a grant without a claim ever ends
//! by its time.

mod acquiring;
#[path = "../common/mod.rs"]
mod common;
mod ending;
mod holding;
mod kinds;
mod least;
mod once;
mod replies;
mod several;
mod still;

use std::time::Duration;

use common::{MOMENTS, Place, SOON, TTL, look, poll_n_times_then_drop, poll_once_then_drop_after};
use leasehold::{Client, Lease, Snapshot, testing};
use tokio::time::{sleep, timeout};

/// One lock, the client under test, and an operator's client that inspects the lock.
struct Scene {
    place: Place,
    client: Client,
    operator: Client,
}

impl Scene {
    async fn at(place: Place) -> Self {
        let (client, operator) = place.two().await;
        Self {
            place,
            client,
            operator,
        }
    }

    fn mutex(&self) -> leasehold::Mutex {
        self.client.mutex("m").ttl(TTL)
    }

    /// A lease of the client under test.
    async fn lease(&self) -> Lease {
        common::take(&self.client, "m").await
    }

    /// A lease of the operator.
    async fn held_by_another(&self) -> Lease {
        common::take(&self.operator, "m").await
    }

    /// Waits until each node that answers shows this state, at most for [`SOON`]. The verdict of a majority may come before.
    async fn all_nodes_show(&self, what: &str, condition: impl Fn(&Snapshot) -> bool) {
        let looking = common::all_nodes_show(&self.operator, "m", what, condition);
        let shown = timeout(SOON, looking).await.is_ok();
        let seen = self.operator.inspect_nodes("m").await;
        assert!(shown, "not soon: {what}, but {seen:?}");
    }

    /// Waits until the operator sees this state, at most for [`SOON`].
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

    /// Waits until the client has nothing under way, at most for [`SOON`].
    async fn is_settled(&self) {
        let settled = timeout(SOON, testing::settled(&self.client)).await;
        settled.expect("the client soon has nothing under way");
    }

    /// Checks that the lock is soon free and without waiters, and that the operator can acquire it.
    async fn is_free_soon(&self) {
        self.is_settled().await;
        let free = |seen: &Snapshot| seen.holder.is_none() && seen.queue.is_empty();
        self.all_nodes_show("free, and nobody waits", free).await;
        let lease = common::take(&self.operator, "m").await;
        lease.release().await.expect("it is held");
        self.all_nodes_show("free again", free).await;
    }

    /// Checks that soon no client waits and `held` is unchanged, and that the lock is free after its release.
    async fn waits_for_nobody_after(&self, held: Lease) {
        self.is_settled().await;
        let theirs = |seen: &Snapshot| {
            let holder = seen.holder.as_ref().and_then(|holder| holder.fence);
            holder == Some(held.fence()) && seen.queue.is_empty()
        };
        self.shows("still held, and nobody waits", theirs).await;
        held.release().await.expect("it is held");
        self.is_free_soon().await;
    }
}

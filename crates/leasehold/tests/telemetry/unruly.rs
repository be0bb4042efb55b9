//! Listeners that panic, and listeners that call the library.

use std::sync::Arc;

use leasehold::{Client, Lease};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;

use crate::common::{Place, TTL, eventually, passing, renewed, take};
use crate::listener::Panics;
use crate::millis;
use crate::recorder::Numbers;
use crate::scene::Scene;

/// A panic on the client's own thread would end all renewals, and no holder would learn that its lease is lost.
async fn costs_no_lease(listener: Panics) {
    let _listening = set_default(listener);
    let scene = Scene::redis();
    let client = scene.client().await;
    let lease = take(&client, "x").await;
    for _ in 0..2 {
        renewed(&scene.time, &lease).await;
    }
    lease.release().await.expect("it is held");
    let lease = take(&client, "x").await;
    scene.server().pause();
    let told = "told, although who listens panics";
    scene.as_seconds_pass(told, lease.lost()).await;
    scene.server().resume();
    scene.as_seconds_pass("closing", client.close()).await;
}

#[tokio::test]
async fn a_listener_that_panics_costs_no_lease() {
    costs_no_lease(Panics(&["span", "record", "follows", "event", "close"])).await;
}

#[tokio::test]
async fn a_listener_that_panics_when_a_span_ends_costs_no_lease() {
    costs_no_lease(Panics(&["close"])).await;
}

/// The other numbers of the same moment are right.
#[tokio::test]
async fn a_recorder_that_panics_loses_only_what_it_was_told() {
    let numbers = Numbers::that_panic_at_times();
    let client = numbers.client(&Place::memory(), Client::builder()).await;
    let held = || numbers.sum("leasehold_held{mode=\"exclusive\"}");
    let lease = take(&client, "x").await;
    assert_eq!(held(), 1);
    lease.release().await.expect("it is held");
    assert_eq!(held(), 0);
    let lease = take(&client, "x").await;
    let broken = client.break_lock("x", lease.fence()).await;
    assert!(broken.expect("the store answers"));
    lease.release().await.expect_err("it was broken");
    let lost = numbers.sum("leasehold_lost_total{cause=\"not_held\"}");
    assert_eq!((held(), lost), (0, 1));
}

/// Releases a lease and acquires another, within each event.
struct CallsBack(std::sync::Mutex<Option<(Client, Vec<Lease>)>>);

impl tracing::Subscriber for CallsBack {
    fn enabled(&self, what: &tracing::Metadata<'_>) -> bool {
        what.target() == "leasehold"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.call();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.call();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.call();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        self.call();
        id.clone()
    }

    fn try_close(&self, _: Id) -> bool {
        self.call();
        false
    }
}

impl CallsBack {
    fn call(&self) {
        // `try_lock`, because the release of a lease calls this listener again.
        let Ok(mut all) = self.0.try_lock() else {
            return;
        };
        let Some((client, leases)) = all.as_mut() else {
            return;
        };
        drop(leases.pop());
        for lease in leases.iter() {
            assert!(lease.doubt().is_none() || lease.valid_for() > millis(0));
        }
        let mutex = client.mutex("other");
        let mut asking = Box::pin(mutex.acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _pending = asking.as_mut().poll(&mut context);
    }
}

#[tokio::test]
async fn a_listener_may_use_the_client_whose_events_it_hears() {
    let listener = Arc::new(CallsBack(std::sync::Mutex::new(None)));
    let _listening = set_default(listener.clone());
    let scene = Scene::redis();
    let client = scene.client().await;
    let mut leases = Vec::new();
    for number in 0..40 {
        leases.push(take(&client, &format!("x{number}")).await);
    }
    *listener.0.lock().expect("nobody has it") = Some((client.clone(), leases));
    let lock = client.mutex("y").ttl(TTL);
    let lease = lock.acquire().await.expect("free");
    renewed(&scene.time, &lease).await;
    scene.server().pause();
    scene.as_seconds_pass("it is told", lease.lost()).await;
    scene.server().resume();
    drop(lease);
    let left = listener.0.lock().expect("nobody panicked").take();
    let left = left.expect("put there").1;
    assert!(left.len() < 40);
    drop(left);
    for number in 0..40 {
        let name = format!("x{number}");
        let free = eventually("free", async || {
            let seen = client.inspect(&name).await;
            seen.is_ok_and(|seen| seen.holder.is_none())
        });
        passing(&scene.time, "it is free", free).await;
    }
    scene.as_seconds_pass("closing", client.close()).await;
}

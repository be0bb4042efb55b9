//! Listeners that panic, and listeners that call the library.

use leasehold::{Client, Lease};
use tracing::subscriber::set_default;

use crate::common::{TTL, eventually, passing, renewed, take};
use crate::millis;
use crate::scene::Scene;

/// A subscriber that panics at every span and event.
struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, what: &tracing::Metadata<'_>) -> bool {
        what.target() == "leasehold"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        panic!("span")
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {
        panic!("record")
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {
        panic!("follows")
    }

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("event")
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A panic on the client's own thread would end all renewals, and no holder would learn that its lease is lost.
#[tokio::test]
async fn a_listener_that_panics_costs_no_lease() {
    let _listening = set_default(Panics);
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

/// Releases a lease and acquires another, within each event.
struct CallsBack(std::sync::Mutex<Option<(Client, Vec<Lease>)>>);

impl tracing::Subscriber for CallsBack {
    fn enabled(&self, what: &tracing::Metadata<'_>) -> bool {
        what.target() == "leasehold"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.call();
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {
        self.call();
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.call();
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}

    fn clone_span(&self, id: &tracing::span::Id) -> tracing::span::Id {
        self.call();
        id.clone()
    }

    fn try_close(&self, _: tracing::span::Id) -> bool {
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
    let listener = std::sync::Arc::new(CallsBack(std::sync::Mutex::new(None)));
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

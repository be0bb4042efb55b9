//! Locks with an at-least time. They also stay taken when a future is dropped, but not if no caller received the lease.

use std::time::Duration;

use leasehold::Lease;
use tokio::time::sleep;

use crate::common::{Place, TTL, at_each_poll, look};
use crate::still::on_every_still_store;
use crate::{MOMENTS, Scene, poll_n_times_then_drop};

/// Checks that the lock stays taken after the lease ends, and that a break frees it.
async fn is_kept_until_broken(scene: &Scene, lease: Lease) {
    let fence = lease.fence();
    drop(lease);
    scene.is_settled().await;
    let holder = look(&scene.operator, "m").await.holder;
    assert!(holder.is_some(), "it is kept");
    let broken = scene.operator.break_lock("m", fence).await;
    assert!(broken.expect("it answers"));
    scene.is_free_soon().await;
}

async fn an_acquisition_that_is_dropped_keeps_nothing(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex().at_least(TTL);
    at_each_poll(async |n| {
        let lease = poll_n_times_then_drop(n, mutex.acquire()).await;
        let ended = lease.is_some();
        if let Some(lease) = lease {
            is_kept_until_broken(&scene, lease.expect("it is free")).await;
        }
        scene.is_free_soon().await;
        ended
    })
    .await;
    for moment in MOMENTS {
        // Polls the future once and drops it a moment later. The client may get the lock meanwhile.
        let mut acquiring = Box::pin(mutex.clone().acquire_owned());
        let first = poll_n_times_then_drop(1, acquiring.as_mut()).await;
        if let Some(lease) = first {
            is_kept_until_broken(&scene, lease.expect("it is free")).await;
            continue;
        }
        sleep(moment).await;
        drop(acquiring);
        scene.is_free_soon().await;
    }
}

async fn a_future_that_owns_its_mutex_leaves_nothing(place: Place) {
    let scene = Scene::at(place).await;
    let held = scene.held_by_another().await;
    for n in 1..=3 {
        let forever = scene.mutex().acquire_owned();
        assert!(
            poll_n_times_then_drop(n, forever_or_waker(forever))
                .await
                .is_none()
        );
        let limited = scene.mutex().acquire_within_owned(TTL);
        assert!(
            poll_n_times_then_drop(n, forever_or_waker(limited))
                .await
                .is_none()
        );
        drop(poll_n_times_then_drop(n, scene.mutex().try_acquire_owned()).await);
    }
    scene.waits_for_nobody_after(held).await;
}

/// Wakes the future each millisecond, so that it is polled often enough.
async fn forever_or_waker<T>(future: impl Future<Output = T>) -> T {
    tokio::select! {
        output = future => output,
        () = async { loop { sleep(Duration::from_millis(1)).await } } => unreachable!("it never ends"),
    }
}

async fn a_release_that_is_dropped_keeps_the_lock(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex().at_least(TTL);
    at_each_poll(async |n| {
        let lease = mutex.try_acquire().await.expect("it answers");
        let lease = lease.expect("it is free");
        let fence = lease.fence();
        let released = poll_n_times_then_drop(n, lease.release()).await;
        scene.is_settled().await;
        assert!(look(&scene.operator, "m").await.holder.is_some());
        let broken = scene.operator.break_lock("m", fence).await;
        assert!(broken.expect("it answers"));
        scene.is_free_soon().await;
        released.map(|told| told.expect("it was held")).is_some()
    })
    .await;
}

on_every_still_store! {
    an_acquisition_that_is_dropped_keeps_nothing
    a_future_that_owns_its_mutex_leaves_nothing
    a_release_that_is_dropped_keeps_the_lock
}

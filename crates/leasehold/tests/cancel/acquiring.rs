//! Acquiring, dropped at any moment.

use std::future::poll_fn;
use std::hint::spin_loop;
use std::pin::{Pin, pin};
use std::task::Poll;

use leasehold::{Error, Lease, Mutex};
use tokio::time::sleep;

use crate::common::{LONG, MANY, Place, at_each_poll};
use crate::still::on_every_still_store;
use crate::{MOMENTS, Scene, poll_n_times_then_drop, poll_once_then_drop_after};

type Acquiring<'a> = Pin<Box<dyn Future<Output = Result<Option<Lease>, Error>> + Send + 'a>>;

/// A method that acquires.
type Way = fn(&Mutex) -> Acquiring<'_>;

/// The methods that wait.
const PATIENT: [Way; 2] = [
    |mutex| Box::pin(async { mutex.acquire().await.map(Some) }),
    |mutex| Box::pin(async { mutex.acquire_within(LONG).await.map(Some) }),
];

/// All methods.
const WAYS: [Way; 3] = [PATIENT[0], PATIENT[1], |mutex| {
    Box::pin(mutex.try_acquire())
}];

async fn a_free_lock(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for way in WAYS {
        at_each_poll(async |n| {
            let output = poll_n_times_then_drop(n, way(&mutex)).await;
            let ended = output.is_some();
            drop(output.map(|lease| lease.expect("it is free").expect("it is free")));
            scene.is_free_soon().await;
            ended
        })
        .await;
    }
}

async fn a_free_lock_at_any_moment(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for moment in MOMENTS {
        for way in WAYS {
            poll_once_then_drop_after(way(&mutex), sleep(moment)).await;
            scene.is_free_soon().await;
        }
    }
}

async fn a_lock_that_was_got_and_not_looked_at(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for way in WAYS {
        let got = scene.shows("it is held", |seen| seen.holder.is_some());
        poll_once_then_drop_after(way(&mutex), got).await;
        scene.is_free_soon().await;
    }
}

async fn a_future_that_was_never_polled(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for way in WAYS {
        drop(way(&mutex));
    }
    scene.is_free_soon().await;
}

async fn a_lock_that_another_holds(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for way in WAYS {
        let held = scene.held_by_another().await;
        if let Some(answered) = poll_n_times_then_drop(1, way(&mutex)).await {
            assert!(matches!(answered, Ok(None)), "{answered:?}");
        }
        scene.waits_for_nobody_after(held).await;
    }
    let held = scene.held_by_another().await;
    let output = poll_n_times_then_drop(MANY, mutex.try_acquire()).await;
    let busy = output.expect("it asks once").expect("the store answers");
    assert!(busy.is_none());
    scene.waits_for_nobody_after(held).await;
}

async fn a_lock_that_another_holds_at_any_moment(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for moment in MOMENTS {
        for way in WAYS {
            let held = scene.held_by_another().await;
            poll_once_then_drop_after(way(&mutex), sleep(moment)).await;
            scene.waits_for_nobody_after(held).await;
        }
    }
}

async fn a_place_in_the_queue(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for way in PATIENT {
        let held = scene.held_by_another().await;
        poll_once_then_drop_after(way(&mutex), scene.shows_a_waiter()).await;
        scene.waits_for_nobody_after(held).await;
    }
}

async fn a_lock_that_is_just_being_handed_over(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for moment in MOMENTS {
        for way in PATIENT {
            let held = scene.held_by_another().await;
            let handed_over = async {
                scene.shows_a_waiter().await;
                drop(held);
                sleep(moment).await;
            };
            poll_once_then_drop_after(way(&mutex), handed_over).await;
            scene.is_free_soon().await;
        }
    }
}

async fn a_lock_that_was_handed_over_and_not_looked_at(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for way in PATIENT {
        let held = scene.held_by_another().await;
        let fence = held.fence();
        let claimed = async {
            scene.shows_a_waiter().await;
            held.release().await.expect("it is held");
            let claimed = |lease: &leasehold::HolderView| {
                let left = lease.expires_in.unwrap_or_default();
                lease.fence > Some(fence) && left > leasehold_core::CLAIM_WINDOW
            };
            let by_next = |seen: &leasehold::Snapshot| seen.holder.as_ref().is_some_and(claimed);
            scene.shows("the next has claimed it", by_next).await;
        };
        poll_once_then_drop_after(way(&mutex), claimed).await;
        scene.is_free_soon().await;
    }
}

/// The client checks for the last time that the caller still waits, and delivers the lease about a microsecond later. The test needs many
/// tries to hit this moment. It drops later after a drop that was too early, and earlier after a delivery.
async fn a_lock_that_is_just_being_delivered(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    let mut spins = 64;
    for _ in 0..60 {
        for _ in 0..50 {
            let mut acquiring = pin!(mutex.try_acquire());
            let mut poll =
                async || poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context))).await;
            let mut delivered = poll().await.is_ready();
            for _ in 0..spins {
                spin_loop();
            }
            delivered = delivered || poll().await.is_ready();
            spins = if delivered {
                spins - spins / 8
            } else {
                (spins + spins / 8 + 1).min(1 << 20)
            };
        }
        scene.is_free_soon().await;
    }
}

async fn many_at_once(place: Place) {
    let scene = Scene::at(place).await;
    let mutex = scene.mutex();
    for moment in MOMENTS {
        let all = WAYS.iter().chain(&WAYS).chain(&WAYS);
        let all = all.map(|way| poll_once_then_drop_after(way(&mutex), sleep(moment)));
        futures_util::future::join_all(all).await;
        scene.is_free_soon().await;
    }
}

on_every_still_store! {
    a_free_lock
    a_free_lock_at_any_moment
    a_lock_that_was_got_and_not_looked_at
    a_future_that_was_never_polled
    a_lock_that_another_holds
    a_lock_that_another_holds_at_any_moment
    a_place_in_the_queue
    a_lock_that_is_just_being_delivered
    a_lock_that_is_just_being_handed_over
    a_lock_that_was_handed_over_and_not_looked_at
    many_at_once
}

//! Work that is done once: a run that is dropped leaves its firing open, or done, and the lock free.

use leasehold::{Error, Turn};
use tokio::task::yield_now;

use crate::common::{Place, SOON, at_each_poll};
use crate::still::{local, memory, redis};
use crate::{Scene, poll_n_times_then_drop};

async fn a_run_that_is_dropped_is_open_or_done(place: Place) {
    let scene = Scene::at(place).await;
    let mut number = 0;
    at_each_poll(async |n| {
        number += 1;
        let firing = scene.mutex().once(number.to_string());
        let mut worked = 0;
        let run = firing.run(async |_| {
            yield_now().await;
            worked += 1;
            Ok::<_, Error>(())
        });
        let ended = poll_n_times_then_drop(n, run).await;
        scene.is_free_soon().await;
        let operator = scene.operator.once("m", number.to_string());
        let is_done = async || {
            let past = operator.past().await.expect("it answers");
            past.is_some_and(|past| past.is_done)
        };
        // The answer may be under way, but a mark stands for work that was done.
        let was_done = is_done().await;
        assert!(!was_done || worked == 1);
        assert!(was_done || ended.is_none());
        let again = operator
            .run_within(SOON, async |_| Ok::<_, Error>(()))
            .await;
        let turn = again.expect("the lock is free");
        assert!(!was_done || matches!(turn, Turn::Done(_)), "{turn:?}");
        assert!(is_done().await);
        ended.is_some()
    })
    .await;
}

#[tokio::test]
async fn on_memory() {
    a_run_that_is_dropped_is_open_or_done(memory()).await;
}

#[tokio::test]
async fn on_local() {
    a_run_that_is_dropped_is_open_or_done(local()).await;
}

#[tokio::test]
async fn on_redis() {
    a_run_that_is_dropped_is_open_or_done(redis()).await;
}

#[tokio::test]
async fn on_a_cluster() {
    a_run_that_is_dropped_is_open_or_done(Place::cluster()).await;
}

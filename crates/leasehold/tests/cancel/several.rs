//! Several locks at once: a future that is dropped leaves none of them taken.

use leasehold::{All, Client};
use tokio::time::timeout;

use crate::common::{Place, TTL, at_each_poll};
use crate::still::on_every_still_store;
use crate::{MOMENTS, Scene, poll_n_times_then_drop};

fn all_of(client: &Client) -> All {
    let [m, a, z] = ["m", "a", "z"].map(|name| client.mutex(name).ttl(TTL));
    client.all([&m, &a, &z])
}

async fn one_that_is_dropped_keeps_none(place: Place) {
    let scene = Scene::at(place).await;
    let (all, of_operator) = (all_of(&scene.client), all_of(&scene.operator));
    // For another client.
    let are_free = async || {
        let leases = of_operator.acquire().await;
        drop(leases.expect("it answers"));
    };
    at_each_poll(async |n| {
        let leases = poll_n_times_then_drop(n, all.acquire()).await;
        let ended = leases.map(|leases| drop(leases.expect("they are free")));
        are_free().await;
        ended.is_some()
    })
    .await;
    // One is busy. The others are given back, or waited with.
    let held = scene.held_by_another().await;
    for (n, moment) in MOMENTS.into_iter().enumerate() {
        let waits = poll_n_times_then_drop(n + 1, all.try_acquire()).await;
        assert!(waits.is_none_or(|busy| busy.expect("it answers").is_none()));
        let limited = timeout(moment, all.acquire());
        assert!(limited.await.is_err());
    }
    held.release().await.expect("it was held");
    are_free().await;
    scene.is_free_soon().await;
}

on_every_still_store! {
    one_that_is_dropped_keeps_none
}

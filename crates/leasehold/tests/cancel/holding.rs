//! Calls of a lease and of a client, dropped at any moment.

use std::time::Duration;

use leasehold::{Client, Fence};
use tokio::time::sleep;

use crate::common::{Place, TTL, at_each_poll, eventually, look};
use crate::still::on_every_still_store;
use crate::{MOMENTS, Scene, poll_n_times_then_drop, poll_once_then_drop_after};

async fn extend(place: Place) {
    let scene = Scene::at(place).await;
    let lease = scene.lease().await;
    at_each_poll(async |n| {
        let ended = poll_n_times_then_drop(n, lease.extend(TTL * 2)).await;
        scene.is_settled().await;
        assert!(!lease.is_lost());
        ended.is_some()
    })
    .await;
    for moment in MOMENTS {
        poll_once_then_drop_after(lease.extend(TTL), sleep(moment)).await;
        lease.extend(TTL * 2).await.expect("it is held");
    }
    assert!(lease.valid_for() > TTL);
    lease.release().await.expect("it is held");
    scene.is_free_soon().await;
}

async fn extend_and_the_lease(place: Place) {
    let scene = Scene::at(place).await;
    for moment in MOMENTS {
        let lease = scene.lease().await;
        poll_once_then_drop_after(lease.extend(TTL * 2), sleep(moment)).await;
        drop(lease);
        scene.is_free_soon().await;
    }
}

async fn release(place: Place) {
    let scene = Scene::at(place).await;
    at_each_poll(async |n| {
        let lease = scene.lease().await;
        let released = poll_n_times_then_drop(n, lease.release()).await;
        scene.is_free_soon().await;
        released.map(|told| told.expect("it was held")).is_some()
    })
    .await;
    for moment in MOMENTS {
        let lease = scene.lease().await;
        poll_once_then_drop_after(lease.release(), sleep(moment)).await;
        scene.is_free_soon().await;
    }
    let lease = scene.lease().await;
    drop(lease.release());
    scene.is_free_soon().await;
}

async fn release_after(place: Place) {
    let scene = Scene::at(place).await;
    let keep = Duration::from_millis(50);
    at_each_poll(async |n| {
        let lease = scene.lease().await;
        let released = poll_n_times_then_drop(n, lease.release_after(keep)).await;
        scene.is_free_soon().await;
        released.map(|told| told.expect("it was held")).is_some()
    })
    .await;
}

/// A caller that drops the future never learns the token, so the lock must become free.
async fn detach(place: Place) {
    let scene = Scene::at(place).await;
    at_each_poll(async |n| {
        let lease = scene.lease().await;
        let told = poll_n_times_then_drop(n, lease.detach(TTL * 2)).await;
        let ended = told.is_some();
        if let Some(told) = told {
            let (detached, _) = told.expect("it was held");
            detached.release().await.expect("it is held");
        }
        scene.is_free_soon().await;
        ended
    })
    .await;
    for moment in MOMENTS {
        let lease = scene.lease().await;
        let detaching = async {
            let (detached, _) = lease.detach(TTL * 2).await.expect("it was held");
            detached.release().await.expect("it is held");
        };
        poll_once_then_drop_after(detaching, sleep(moment)).await;
        scene.is_free_soon().await;
    }
}

async fn run(place: Place) {
    let scene = Scene::at(place).await;
    at_each_poll(async |n| {
        let lease = scene.lease().await;
        let work = lease.run(async |lease| {
            lease.extend(TTL).await.expect("it is held");
            tokio::task::yield_now().await;
            Ok::<_, leasehold::Error>(look(&scene.operator, "m").await)
        });
        let output = poll_n_times_then_drop(n, work).await;
        scene.is_free_soon().await;
        output.map(|ran| ran.expect("it was held")).is_some()
    })
    .await;
}

async fn run_from_the_mutex(place: Place) {
    let scene = Scene::at(place).await;
    at_each_poll(async |n| {
        let mutex = scene.mutex();
        let work = mutex.run(async |lease| {
            lease.extend(TTL).await.expect("it is held");
            tokio::task::yield_now().await;
            Ok::<_, leasehold::Error>(())
        });
        let ran = poll_n_times_then_drop(n, work).await;
        scene.is_free_soon().await;
        ran.map(|ran| ran.expect("it was held")).is_some()
    })
    .await;
    let held = scene.held_by_another().await;
    let mutex = scene.mutex();
    let never =
        async |_: &leasehold::Lease| -> Result<(), leasehold::Error> { panic!("it is busy") };
    poll_once_then_drop_after(mutex.run(never), scene.shows_a_waiter()).await;
    let limited = mutex.run_within(TTL, never);
    poll_once_then_drop_after(limited, scene.shows_a_waiter()).await;
    at_each_poll(async |n| {
        let tried = poll_n_times_then_drop(n, mutex.try_run(never)).await;
        tried.is_some_and(|ran| ran.expect("it answers").is_none())
    })
    .await;
    scene.waits_for_nobody_after(held).await;
}

/// A dropped watch changes nothing, and a later watch reports the end.
async fn watch(place: Place) {
    let scene = Scene::at(place).await;
    let lease = scene.lease().await;
    let watch = lease.watch();
    assert!(poll_n_times_then_drop(1, watch.lost()).await.is_none());
    assert!(poll_n_times_then_drop(1, watch.ended()).await.is_none());
    poll_once_then_drop_after(watch.ended(), lease_is_touched(&lease)).await;
    drop(lease);
    assert!(poll_n_times_then_drop(1, watch.ended()).await.is_some());
    scene.is_free_soon().await;
}

async fn lost(place: Place) {
    let scene = Scene::at(place).await;
    let lease = scene.lease().await;
    assert!(poll_n_times_then_drop(1, lease.lost()).await.is_none());
    poll_once_then_drop_after(lease.lost(), lease_is_touched(&lease)).await;
    assert!(
        scene
            .operator
            .break_lock("m", lease.fence())
            .await
            .expect("it answers")
    );
    lease.extend(TTL).await.expect_err("it was broken");
    assert!(poll_n_times_then_drop(1, lease.lost()).await.is_some());
    drop(lease);
    scene.is_free_soon().await;
}

async fn lease_is_touched(lease: &leasehold::Lease) {
    lease.extend(TTL).await.expect("it is held");
}

async fn inspect_and_names(place: Place) {
    let scene = Scene::at(place).await;
    let lease = scene.lease().await;
    at_each_poll(async |n| {
        let seen = poll_n_times_then_drop(n, scene.client.inspect("m")).await;
        let names = poll_n_times_then_drop(n, scene.client.names()).await;
        seen.is_some() && names.is_some()
    })
    .await;
    lease.release().await.expect("it is held");
    scene.is_free_soon().await;
}

async fn break_lock(place: Place) {
    let scene = Scene::at(place).await;
    at_each_poll(async |n| {
        let lease = scene.held_by_another().await;
        let stale = scene.client.break_lock("m", Fence::new(1));
        poll_n_times_then_drop(n, stale).await;
        scene.is_settled().await;
        assert!(look(&scene.operator, "m").await.holder.is_some());

        let right = scene.client.break_lock("m", lease.fence());
        let broken = poll_n_times_then_drop(n, right).await;
        scene.is_settled().await;
        drop(lease);
        scene.is_free_soon().await;
        broken.is_some()
    })
    .await;
}

async fn close(place: Place) {
    at_each_poll(async |n| {
        let (client, others) = place.two().await;
        let held = crate::common::take(&client, "m").await;
        let theirs = crate::common::take(&others, "theirs").await;
        let mutex = client.mutex("theirs").ttl(TTL);
        let waiting = async {
            mutex.acquire().await.expect_err("it is closed");
        };
        let closing = async {
            let queued = async || look(&others, "theirs").await.queue.len() == 1;
            eventually("it waits", queued).await;
            poll_n_times_then_drop(n, client.close()).await
        };
        let ((), closed) = tokio::join!(waiting, closing);
        assert!(held.is_lost());
        let clean = async || {
            let (ours, theirs) = (look(&others, "m").await, look(&others, "theirs").await);
            ours.holder.is_none() && theirs.queue.is_empty()
        };
        let clean = eventually("all is given back", clean);
        tokio::time::timeout(crate::SOON, clean)
            .await
            .expect("soon");
        theirs.release().await.expect("it is held");
        closed.is_some()
    })
    .await;
}

async fn connect(place: Place) {
    let operator = place.client().await;
    let connections = async || {
        let servers = place.servers().iter();
        let lists = servers.map(|server| server.cli(&["CLIENT", "LIST"]).text());
        lists.map(|list| list.lines().count()).sum::<usize>()
    };
    let before = connections().await;
    at_each_poll(async |n| {
        let client = poll_n_times_then_drop(n, place.connect(Client::builder())).await;
        client.map(|client| client.expect("it works")).is_some()
    })
    .await;
    eventually("no connection is left", async || {
        connections().await == before
    })
    .await;
    let lease = crate::common::take(&operator, "m").await;
    lease.release().await.expect("it is held");
}

/// The store's own clock ends it, so that clock must go on.
mod in_time {
    use super::release_after;
    use crate::common::on_every_store;

    on_every_store! { release_after }
}

on_every_still_store! {
    extend
    extend_and_the_lease
    release
    detach
    run
    run_from_the_mutex
    watch
    lost
    inspect_and_names
    break_lock
    close
    connect
}

//! Runtimes that end, tasks that panic, and leases dropped where nothing asynchronous can run.

use std::future::pending;
use std::thread;

use leasehold::Lease;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Scene;
use crate::common::{Place, stand_in_line};
use crate::still::on_every_still_store;

/// The runtime of a user's program, with its own threads.
fn another_runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn closing_from_many_threads_at_once() {
    for _ in 0..50 {
        let client = leasehold::Client::embedded().expect("a thread");
        let (done, all_done) = std::sync::mpsc::channel();
        for _ in 0..4 {
            let (client, done) = (
                leasehold::blocking::Client::from(client.clone()),
                done.clone(),
            );
            thread::Builder::new()
                .spawn(move || {
                    (0..50).for_each(|_| assert!(client.close()));
                    done.send(()).expect("the test waits");
                })
                .expect("a thread");
        }
        for _ in 0..4 {
            let closed = all_done.recv_timeout(crate::common::LONG);
            closed.expect("close returns, however often it is called");
        }
    }
}

async fn a_runtime_that_ends_while_it_holds(place: Place) {
    let scene = Scene::at(place).await;
    let runtime = another_runtime();
    let lease = scene.lease().await;
    let mut tasks = JoinSet::new();
    tasks.spawn_on(hold_for_ever(lease), runtime.handle());
    runtime.shutdown_background();
    scene.is_free_soon().await;
}

async fn hold_for_ever(lease: Lease) {
    pending::<()>().await;
    drop(lease);
}

async fn a_runtime_that_ends_while_it_waits(place: Place) {
    let scene = Scene::at(place).await;
    let held = scene.held_by_another().await;
    let runtime = another_runtime();
    let mutex = scene.mutex();
    let mut tasks = JoinSet::new();
    tasks.spawn_on(async move { mutex.acquire().await }, runtime.handle());
    scene.shows_a_waiter().await;
    runtime.shutdown_background();
    scene.waits_for_nobody_after(held).await;
}

async fn a_client_that_was_made_in_a_runtime_that_ended(place: Place) {
    let scene = Scene::at(place).await;
    let place = &scene.place;
    let client = thread::scope(|scope| {
        let connect = || another_runtime().block_on(place.client());
        scope.spawn(connect).join().expect("nothing panicked")
    });
    let lease = crate::common::take(&client, "m").await;
    lease.extend(crate::TTL).await.expect("it is held");
    drop(client);
    drop(lease);
    scene.is_free_soon().await;
}

async fn a_lease_dropped_outside_of_any_runtime(place: Place) {
    let scene = Scene::at(place).await;
    let lease = scene.lease().await;
    let dropped = thread::scope(|scope| scope.spawn(|| drop(lease)).join());
    dropped.expect("it does not panic there");
    scene.is_free_soon().await;
}

async fn a_task_that_panics_while_it_holds(place: Place) {
    let scene = Scene::at(place).await;
    let lease = scene.lease().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _held = lease;
        tokio::task::yield_now().await;
        panic!("on purpose: this task holds a lease");
    });
    let ended = tasks.join_next().await.expect("there is one");
    assert!(ended.is_err_and(|error| error.is_panic()));
    scene.is_free_soon().await;
}

async fn a_task_that_is_aborted(place: Place) {
    let scene = Scene::at(place).await;
    let held = scene.held_by_another().await;
    let mut tasks = JoinSet::new();
    for number in 0..3 {
        stand_in_line(&mut tasks, number, scene.mutex()).await;
    }
    drop(tasks);
    scene.waits_for_nobody_after(held).await;
}

async fn the_client_goes_before_the_lease_and_who_waits(place: Place) {
    let mut scene = Scene::at(place).await;
    let (lease, mutex) = (scene.lease().await, scene.mutex());
    scene.client = scene.place.client().await;
    let mut tasks = JoinSet::new();
    stand_in_line(&mut tasks, 0, mutex).await;
    drop(lease);
    let (_, next) = tasks
        .join_next()
        .await
        .expect("one waits")
        .expect("no panic");
    drop(next.expect("its turn"));
    scene.is_free_soon().await;
}

on_every_still_store! {
    a_runtime_that_ends_while_it_holds
    a_runtime_that_ends_while_it_waits
    a_client_that_was_made_in_a_runtime_that_ended
    a_lease_dropped_outside_of_any_runtime
    a_task_that_panics_while_it_holds
    a_task_that_is_aborted
    the_client_goes_before_the_lease_and_who_waits
}

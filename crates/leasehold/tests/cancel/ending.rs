//! Runtimes that end, tasks that panic, and leases dropped where nothing asynchronous can run.

use std::future::pending;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::Lease;
use testkit::{FaultProxy, RedisServer, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Scene;
use crate::common::{LONG, Place, stand_in_line};
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

/// The order in which a program drops what it has.
#[derive(Debug, Clone, Copy)]
enum Last {
    Client,
    Lease,
    /// A waiting acquisition, which has become a lease without its knowledge.
    Acquisition,
}

/// The command by which a client releases a lock there.
fn release_of(server: &RedisServer) -> &'static str {
    let has = |command: &&str| !server.cli(&["COMMAND", "INFO", command]).array()[0].is_nil();
    let native = ["DELEX", "DELIFEQ"].into_iter().find(has);
    native.unwrap_or("EVALSHA")
}

/// The program has one thread, and ends as soon as its last object is dropped: nothing may be left to do for another thread.
#[test]
fn a_program_that_ends_right_after_a_drop_leaves_no_lock() {
    for last in [Last::Client, Last::Lease, Last::Acquisition] {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.port());
        let url = proxy.url();
        let (ready, is_ready) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let (ends, ended) = mpsc::channel();
        let program = async move {
            let builder = leasehold::Client::builder().request_timeout(LONG);
            let client = builder.drop_timeout(3 * LONG).connect(&url).await;
            let client = client.expect("it answers");
            let mutex = client.mutex("m").ttl(3 * LONG);
            let lease = mutex.acquire().await.expect("it is free");
            let waiting = mutex.clone();
            let mut again = Box::pin(async move { waiting.acquire().await });
            drop(mutex);
            if matches!(last, Last::Acquisition) {
                assert!(futures_util::poll!(&mut again).is_pending());
            }
            ready.send(()).expect("the test waits");
            goes.recv().expect("the test goes on");
            match last {
                Last::Client => drop((again, lease, client)),
                Last::Lease => drop((again, client, lease)),
                Last::Acquisition => drop((lease, client, again)),
            }
        };
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let program = thread::Builder::new().spawn(move || {
            runtime.block_on(program);
            ends.send(()).expect("the test waits");
        });
        is_ready.recv_timeout(LONG).expect("a lease");
        assert_eq!(server.cli(&["EXISTS", "m"]).int(), 1);
        proxy.hold_at(release_of(&server));
        go.send(()).expect("the program waits");
        eventually(LONG, "a release under way", || proxy.is_holding());
        assert!(ended.try_recv().is_err(), "{last:?}: it has not waited");
        proxy.go_on();
        ended.recv_timeout(LONG).expect("it ends");
        assert_eq!(server.cli(&["EXISTS", "m"]).int(), 0, "{last:?}");
        program.expect("a thread").join().expect("no panic");
    }
}

/// The request has no answer for a minute.
#[test]
fn a_silent_server_keeps_no_program_from_its_end() {
    for limit in [None, Some(Duration::ZERO)] {
        let server = RedisServer::start();
        let builder = leasehold::Client::builder().request_timeout(3 * LONG);
        let builder = match limit {
            Some(limit) => builder.drop_timeout(limit),
            None => builder,
        };
        let client = builder.connect_blocking(&server.url()).expect("it answers");
        let lease = client
            .mutex("m")
            .ttl(9 * LONG)
            .acquire()
            .expect("it is free");
        server.pause();
        let (ends, ended) = mpsc::channel();
        let program = thread::Builder::new().spawn(move || {
            drop((lease, client));
            ends.send(()).expect("the test waits");
        });
        ended
            .recv_timeout(LONG)
            .expect("long before the request has its answer");
        program.expect("a thread").join().expect("no panic");
    }
}

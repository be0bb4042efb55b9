//! The executor that created the client is blocked, ends, or is replaced. Neither the leases nor the server may notice this.

use std::sync::Arc;
use std::thread::JoinHandle;

use leasehold::{Client, Lease};
use pollster::block_on;
use testkit::{FaultProxy, RedisServer, eventually};
use tokio::runtime::{Builder, Runtime};

use super::scene::{LONG, PLENTY, Timed, connect, is_free, millis, queue_up, take};

/// An executor that runs only inside `block_on`.
pub(crate) fn executor() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

#[allow(
    clippy::disallowed_methods,
    reason = "the test's own thread, not the library's"
)]
pub(crate) fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::spawn(work)
}

/// A client that was created on an executor.
fn scene() -> (RedisServer, Runtime, Client) {
    let (server, executor) = (RedisServer::start(), executor());
    let client = executor.block_on(connect(&server.url()));
    (server, executor, client)
}

/// A client that was created on an executor, with a clock that only the test moves.
fn timed_scene() -> (Timed, Runtime, Client) {
    let (timed, executor) = (Timed::start(), executor());
    let client = executor.block_on(timed.client());
    (timed, executor, client)
}

/// Lets the lease be renewed until its first deadline is long over, while this thread and its executor are blocked.
fn outlives_its_ttl(timed: &Timed, lease: &Lease) {
    for _ in 0..4 {
        let until = lease.valid_until();
        timed.pass(lease.valid_for() / 2);
        eventually(PLENTY, "it is renewed", || {
            timed.pass(millis(1));
            lease.valid_until() > until || lease.is_lost()
        });
        assert!(!lease.is_lost(), "{:?}", lease.loss());
    }
}

/// A waiter of `client` that knows its place in the queue, and a function that releases the lock to it.
fn in_line(
    server: &RedisServer,
    executor: &Runtime,
    client: &Client,
) -> (JoinHandle<Lease>, impl FnOnce() + use<>) {
    let other = self::executor();
    let holder = other.block_on(connect(&server.url()));
    let held = other.block_on(take(&holder, "orders", LONG));
    let (told, hears) = std::sync::mpsc::channel();
    let lock = client.mutex("orders").ttl(LONG).on_wait(move |_| {
        told.send(()).ok();
    });
    let waiting = on_a_thread(move || block_on(lock.acquire()).expect("its turn"));
    executor.block_on(async {
        while hears.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
    });
    let release = move || other.block_on(held.release()).expect("it is held");
    (waiting, release)
}

#[test]
fn a_blocked_executor_costs_no_lease() {
    let (timed, executor, client) = timed_scene();
    let lease = executor.block_on(take(&client, "orders", LONG));
    outlives_its_ttl(&timed, &lease);
    assert!(!is_free(&timed.server, "orders"));
    executor
        .block_on(lease.release())
        .expect("held all the time");
    assert!(is_free(&timed.server, "orders"));
}

/// The number of connections that the server has accepted so far.
fn connections(server: &RedisServer) -> String {
    let stats = server.cli(&["INFO", "stats"]).text();
    let line = stats
        .lines()
        .find(|line| line.starts_with("total_connections_received"));
    line.expect("it counts them").trim().to_owned()
}

#[test]
fn a_blocked_executor_costs_no_connection() {
    let (server, executor, client) = scene();
    // The test itself sends commands over one connection, for as long as the server lives.
    let before = connections(&server);
    for _ in 0..3 {
        let lease = executor.block_on(take(&client, "orders", LONG));
        // First without the executor, and then on it again.
        block_on(client.inspect("orders")).expect("it is answered");
        block_on(lease.release()).expect("it is held");
        let lease = block_on(client.mutex("orders").ttl(LONG).acquire()).expect("it is free");
        executor.block_on(lease.release()).expect("it is held");
    }
    drop(executor);
    block_on(client.inspect("orders")).expect("it is answered");
    assert_eq!(connections(&server), before);
}

/// The number of times that the client's own thread went to sleep.
#[cfg(target_os = "linux")]
fn sleeps(client: &Client) -> u64 {
    // A thread's name is cut to 15 bytes.
    let name: String = format!("lh-{}", client.id()).chars().take(15).collect();
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let mut statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    let named = format!("Name:\t{name}\n");
    let status = statuses
        .find(|status| status.starts_with(&named))
        .expect("the client has a thread");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("Linux counts them")
        .trim()
        .parse()
        .expect("a number")
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_client_wakes_nobody() {
    let (server, executor) = (RedisServer::start(), executor());
    // With the default limits: those of finished requests have soon passed.
    let client = executor.block_on(Client::connect(&server.url()));
    let client = client.expect("the server can be used");
    let lease = executor.block_on(take(&client, "orders", LONG));
    executor.block_on(lease.release()).expect("it is held");
    // The time limits of finished requests still expire. After that, the thread has nothing to check.
    let mut before = sleeps(&client);
    let mut quiet = super::scene::now();
    eventually(PLENTY * 2, "five seconds without a wake-up", || {
        let now = sleeps(&client);
        if now != before {
            (before, quiet) = (now, super::scene::now());
        }
        super::scene::now().since(quiet) > millis(5_000)
    });
}

#[test]
fn a_look_is_answered_beside_a_blocked_executor() {
    let (server, executor, client) = scene();
    let names = block_on(client.names()).expect("it is answered");
    assert_eq!(names, [""; 0]);

    let proxy = FaultProxy::start(server.port());
    let client = executor.block_on(connect(&proxy.url()));
    proxy.delay(millis(60));
    // The client sends the request. The reply comes while the executor is blocked.
    let blocked = async {
        tokio::time::sleep(millis(30)).await;
        std::thread::sleep(millis(300));
    };
    let looked = async { tokio::join!(client.inspect("orders"), blocked).0 };
    let seen = executor.block_on(looked).expect("it is answered");
    assert!(seen.holder.is_none());
}

#[test]
fn a_look_is_answered_when_its_executor_ends() {
    let server = RedisServer::start();
    // In each round, another task may notice first that the executor has ended.
    for _ in 0..20 {
        let proxy = FaultProxy::start(server.port());
        let mut one_worker = Builder::new_multi_thread();
        let executor = one_worker.worker_threads(1).enable_all().build();
        let executor = executor.expect("a runtime");
        let client = executor.block_on(connect(&proxy.url()));
        let (looks, lists) = (client.clone(), client);
        proxy.delay(millis(60));
        let looking = on_a_thread(move || block_on(looks.inspect("orders")));
        let listing = on_a_thread(move || block_on(lists.names()));
        std::thread::sleep(millis(30));
        drop(executor);
        looking.join().expect("no panic").expect("it is answered");
        listing.join().expect("no panic").expect("it is answered");
    }
}

#[test]
fn a_lease_dropped_beside_a_blocked_executor_is_released() {
    let (server, executor, client) = scene();
    let lease = executor.block_on(take(&client, "orders", LONG));
    drop(lease);
    eventually(PLENTY, "it is free", || is_free(&server, "orders"));
    drop(executor);
    block_on(client.close());
}

#[test]
fn a_runtime_that_ends_takes_nothing_with_it() {
    let (timed, first, client) = timed_scene();
    let lease = first.block_on(take(&client, "orders", LONG));
    drop(first);
    outlives_its_ttl(&timed, &lease);
    block_on(lease.release()).expect("held all the time");
    let again = executor().block_on(take(&client, "orders", LONG));
    assert!(!again.is_lost());
    block_on(again.release()).expect("it is held");
    assert!(is_free(&timed.server, "orders"));
}

#[test]
fn an_acquisition_goes_on_where_its_executor_ended() {
    let (server, executor, client) = scene();
    let lock = client.mutex("orders").ttl(LONG);
    let mut acquiring = Box::pin(lock.acquire());
    // The request is sent, and perhaps answered, when the executor ends.
    executor.block_on(async { assert!(futures_util::poll!(&mut acquiring).is_pending()) });
    drop(executor);
    let lease = block_on(acquiring).expect("the same owner asks again");
    assert!(!is_free(&server, "orders"));
    block_on(lease.release()).expect("it is held");
    assert!(is_free(&server, "orders"));
}

#[test]
fn a_waiter_whose_executor_ended_gets_its_turn() {
    let (server, doomed, client) = scene();
    let (waiting, release) = in_line(&server, &doomed, &client);
    drop(doomed);
    release();
    let lease = waiting.join().expect("no panic");
    block_on(lease.release()).expect("it is held");
}

#[test]
fn a_client_serves_several_runtimes() {
    let (server, first, client) = scene();
    let (second, third) = (executor(), executor());
    for round in 0..20 {
        for executor in [&first, &second, &third] {
            let lease = executor.block_on(take(&client, "orders", LONG));
            if round % 2 == 0 {
                executor.block_on(lease.release()).expect("it is held");
            } else {
                block_on(lease.release()).expect("it is held");
            }
        }
    }
    assert!(is_free(&server, "orders"));
}

#[test]
fn a_runtime_without_timers_and_sockets_is_good_enough() {
    let server = RedisServer::start();
    let bare = Builder::new_current_thread().build().expect("a runtime");
    let client = bare
        .block_on(Client::connect(&server.url()))
        .expect("the server can be used");
    let lease = bare.block_on(client.mutex("orders").ttl(LONG).acquire());
    let waiting = lease.expect("it is free");
    bare.block_on(waiting.release()).expect("it is held");
    assert!(is_free(&server, "orders"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_task_that_blocks_its_worker_costs_no_lease() {
    let timed = Arc::new(Timed::start());
    let (client, other) = (timed.client().await, timed.client().await);
    let lease = take(&client, "orders", LONG).await;
    let waiter = queue_up(&timed.server, &other, "orders", LONG);
    let moves = timed.clone();
    let blocking = super::scene::beside(async move {
        outlives_its_ttl(&moves, &lease);
        lease
    });
    let lease = super::scene::joined("the blocking task", blocking).await;
    let released = timed.passing("the release", lease.release()).await;
    released.expect("held all the time");
    timed.has_its_turn(waiter).await;
}

#[test]
fn waiter_on_blocked_executor_claims_before_grant_lapses() {
    let (server, still, client) = scene();
    let (waiting, release) = in_line(&server, &still, &client);
    release();
    let fence = server.cli(&["GET", "leasehold:fence"]).text();
    let lease = waiting.join().expect("no panic");
    assert_eq!(lease.fence().to_string(), fence, "it was granted once");
    block_on(lease.release()).expect("it is held");
}

//! Helpers of all tests. If there is an event, they wait for it and not for a fixed time.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use leasehold::{Client, Clock, Error, Lease, LossCause, Lost, Moment, StoreError, StoreErrorKind};
use testkit::{RedisServer, eventually};
use tokio::task::JoinHandle;

/// A time limit that only a fault reaches, also on a busy machine.
pub(crate) const PLENTY: Duration = Duration::from_secs(20);

/// A TTL longer than the faults of any test.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A password that no output may show.
pub(crate) const CANARY: &str = "S3CR3T-canary";

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The clock of the leases.
pub(crate) fn now() -> Moment {
    Clock::system().now()
}

pub(crate) async fn connect(url: &str) -> Client {
    within("a connection", Client::connect(url))
        .await
        .expect("the server can be used")
}

/// Returns the output of `future`. Panics with the given text if it takes too long.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(output) = tokio::time::timeout(PLENTY, future).await else {
        panic!("not within {PLENTY:?}: {what}");
    };
    output
}

/// Runs `future` concurrently with the test.
#[allow(
    clippy::disallowed_methods,
    reason = "the test's own tasks, not the library's"
)]
pub(crate) fn beside<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Waits for a task of the test, and returns its output.
pub(crate) async fn joined<T>(what: &str, task: JoinHandle<T>) -> T {
    within(what, task).await.expect("the task did not panic")
}

/// Takes a lock that must be free.
pub(crate) async fn take(client: &Client, name: &str, ttl: Duration) -> Lease {
    let lock = client.mutex(name).ttl(ttl);
    let taken = within("an answer", lock.try_acquire()).await;
    taken
        .expect("the store answers")
        .unwrap_or_else(|| panic!("{name} is busy"))
}

/// Joins the queue of a lock. Returns when both the server and the waiter know it.
pub(crate) fn queue_up(
    server: &RedisServer,
    client: &Client,
    name: &str,
    ttl: Duration,
) -> JoinHandle<Result<Lease, Error>> {
    let place = queued(server, name) + 1;
    let (told, heard) = mpsc::channel();
    let lock = client.mutex(name).ttl(ttl).on_wait(move |_| {
        told.send(()).ok();
    });
    let waiter = beside(async move { lock.acquire().await });
    heard
        .recv_timeout(PLENTY)
        .expect("the waiter is told that the lock is busy");
    eventually(PLENTY, "the waiter is in line", || {
        queued(server, name) == place
    });
    waiter
}

/// The number of waiters of a lock.
pub(crate) fn queued(server: &RedisServer, name: &str) -> i64 {
    server
        .cli(&["ZCARD", &format!("{{{name}}}:lh-queue")])
        .int()
}

pub(crate) fn is_free(server: &RedisServer, name: &str) -> bool {
    server.cli(&["EXISTS", name]).int() == 0
}

/// Closes every connection to the server, except the one of this command.
pub(crate) fn kill_connections(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        let killed = server.cli(&["CLIENT", "KILL", "TYPE", kind]);
        assert!(killed.error().is_none(), "{killed:?}");
    }
}

/// Closes every connection, and returns when a client has connected again. So a slow connection cannot overlap with the next step.
pub(crate) fn kill_until_connected(server: &RedisServer) {
    kill_connections(server);
    eventually(PLENTY, "a new connection", || {
        let listening = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        !listening.text().is_empty()
    });
}

pub(crate) fn set(server: &RedisServer, option: &str, value: &str) {
    assert_eq!(
        server.cli(&["CONFIG", "SET", option, value]).text(),
        "OK",
        "{option} {value}"
    );
}

/// Returns the store error. Panics for any other result, or if the error shows the password.
#[track_caller]
pub(crate) fn store_error<T: Debug>(result: Result<T, Error>) -> StoreError {
    match result {
        Err(Error::Store(error)) => {
            shows_no_password(&error);
            error
        }
        other => panic!("expected a store error, got {other:?}"),
    }
}

/// Returns the store error, which must be of this kind and name `host`.
#[track_caller]
pub(crate) fn refused<T: Debug>(
    result: Result<T, Error>,
    kind: StoreErrorKind,
    host: &str,
) -> StoreError {
    let error = store_error(result);
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(host), "{error}");
    error
}

#[track_caller]
pub(crate) fn shows_no_password(shown: &(impl Display + Debug)) {
    for text in [
        shown.to_string(),
        format!("{shown:?}"),
        format!("{shown:#?}"),
    ] {
        assert!(!text.contains(CANARY) && !text.contains("S3CR3T"), "{text}");
    }
}

/// Waits until the lease is lost by a reply of the store.
pub(crate) async fn lost_by_verdict(lease: &Lease) -> Lost {
    let lost = within("the holder is told", lease.lost()).await;
    assert!(matches!(lost.cause, LossCause::NotHeld(_)), "{lost}");
    lost
}

/// Waits until the lease is lost at its deadline. Also returns the delay of that report.
pub(crate) async fn lost_by_deadline(lease: &Lease) -> (Lost, Duration) {
    let lost = within("the holder is told", lease.lost()).await;
    let late = now().since(lease.valid_until());
    assert!(matches!(lost.cause, LossCause::Deadline(_)), "{lost}");
    assert!(lease.is_lost() && lease.valid_for().is_zero());
    (lost, late)
}

/// Damages a server repeatedly, until the test ends or drops it. A failed test must not leave it running.
pub(crate) struct Nemesis {
    stop: Arc<AtomicBool>,
    work: JoinHandle<u32>,
}

impl Nemesis {
    /// Calls `strike` each time that `pace` has passed.
    pub(crate) fn start(
        server: &Arc<RedisServer>,
        pace: Duration,
        strike: impl Fn(&RedisServer) + Send + 'static,
    ) -> Self {
        let server = server.clone();
        Self::repeat(pace, move || strike(&server))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the pace of a nemesis, not a wait for anything"
    )]
    fn repeat(pace: Duration, mut strike: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = tokio::task::spawn_blocking(move || {
            let mut strikes = 0;
            while !stopped.load(Ordering::SeqCst) {
                std::thread::sleep(pace);
                strike();
                strikes += 1;
            }
            strikes
        });
        Self { stop, work }
    }

    /// Stops it, and returns the number of strikes.
    pub(crate) async fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::SeqCst);
        within("its end", &mut self.work)
            .await
            .expect("no command of it failed")
    }
}

impl Drop for Nemesis {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// The longest allowed time between a deadline and the report to the holder. `lease/tests/virtual_time` has the exact moment; here, a busy
/// machine was 256 ms later than the thread that measures it.
const TOLD_WITHIN: Duration = millis(1_000);

/// Measures the delays of this machine: a thread beside the test only sleeps. On two cores with six busy processes, it was up to 249 ms
/// late, and then no client can be on time. On an idle machine, it adds a few milliseconds to the limit.
pub(crate) struct Stalls {
    seen: Arc<Mutex<Seen>>,
    _sleeper: Nemesis,
}

/// The measurements of that thread.
struct Seen {
    woke: Moment,
    worst: Duration,
}

impl Seen {
    const PACE: Duration = millis(2);

    /// The longest delay so far, including the current one.
    fn worst_until(&self, now: Moment) -> Duration {
        let late = now.since(self.woke).saturating_sub(Self::PACE);
        self.worst.max(late)
    }
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (woke, worst) = (now(), Duration::ZERO);
        let seen = Arc::new(Mutex::new(Seen { woke, worst }));
        let by_sleeper = seen.clone();
        let sleeper = Nemesis::repeat(Seen::PACE, move || {
            let woke = now();
            let mut seen = by_sleeper.lock().expect("no panic");
            let worst = seen.worst_until(woke);
            *seen = Seen { woke, worst };
        });
        Self {
            seen,
            _sleeper: sleeper,
        }
    }

    /// Panics if the report to a holder was later than the limit plus the delay of the machine. After a stall, the holder may run before
    /// the measuring thread. So the thread's current delay counts too.
    #[track_caller]
    pub(crate) fn told_on_time(&self, lost: &Lost, late: Duration) {
        let stalled = self.seen.lock().expect("no panic").worst_until(now());
        println!("told {late:?} after its deadline (a bare thread: {stalled:?}): {lost}");
        assert!(late <= TOLD_WITHIN + stalled, "{late:?} late: {lost}");
    }
}

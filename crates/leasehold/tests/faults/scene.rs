//! Helpers of all tests. If there is an event, they wait for it and not for a fixed time.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use leasehold::{
    Client, ClientBuilder, Clock, Error, Lease, LossCause, Lost, Moment, StoreError, StoreErrorKind,
};
use testkit::{FaultProxy, RedisServer, RedisServerBuilder, TestTime, eventually};
use tokio::task::JoinHandle;

use crate::common;

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

/// The settings of a client whose requests do not fail by their limit.
pub(crate) fn patient() -> ClientBuilder {
    Client::builder().request_timeout(PLENTY)
}

/// Makes a user who has these `rules`, and whose password is the canary. Returns its URL.
pub(crate) fn user(server: &RedisServer, rules: &[&str]) -> String {
    let password = format!(">{CANARY}");
    let rules = [&["ACL", "SETUSER", "worker", "on", &password][..], rules].concat();
    assert_eq!(server.cli(&rules).text(), "OK", "{rules:?}");
    format!("redis://worker:{CANARY}@127.0.0.1:{}/", server.port())
}

pub(crate) async fn connect(url: &str) -> Client {
    connected(patient(), url).await
}

async fn connected(builder: ClientBuilder, url: &str) -> Client {
    within("a connection", builder.connect(url))
        .await
        .expect("the server can be used")
}

/// A server and clients with one clock, which only the test moves.
pub(crate) struct Timed {
    pub(crate) server: Arc<RedisServer>,
    /// Before the server.
    pub(crate) proxy: FaultProxy,
    pub(crate) clock: Clock,
    time: TestTime,
}

impl Timed {
    pub(crate) fn start() -> Self {
        Self::start_with(RedisServer::builder())
    }

    pub(crate) fn start_with(options: RedisServerBuilder) -> Self {
        let server = options.virtual_clock().start();
        let (time, clock) = common::test_time(std::slice::from_ref(&server));
        let server = Arc::new(server);
        let proxy = FaultProxy::start(server.port());
        Self {
            server,
            proxy,
            clock,
            time,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        connected(common::timed(&self.clock), &self.server.url()).await
    }

    /// A client behind the proxy.
    pub(crate) async fn proxied(&self) -> Client {
        connected(common::timed(&self.clock), &self.proxy.url()).await
    }

    pub(crate) fn pass(&self, by: Duration) {
        self.time.pass(by);
    }

    /// The output of `future`, for which clients may have to pause and to ask again.
    pub(crate) async fn passing<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        common::passing(&self.time, what, future).await
    }

    /// Waits until `condition` holds, for which clients may have to pause and to ask again.
    pub(crate) async fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let holds = common::eventually(what, async || condition());
        self.passing(what, holds).await;
    }

    /// The output of a task for which clients may have to pause and to ask again.
    pub(crate) async fn joined<T>(&self, what: &str, task: JoinHandle<T>) -> T {
        let output = self.passing(what, task).await;
        output.expect("the task did not panic")
    }

    /// Waits until this waiter has the lock, and releases it.
    pub(crate) async fn has_its_turn(&self, waiter: JoinHandle<Result<Lease, Error>>) {
        let next = self.joined("its turn", waiter).await.expect("granted");
        next.release().await.expect("held");
    }

    /// Sends a request of a client behind the proxy, which is not answered, and lets its limit pass.
    pub(crate) async fn beyond<T>(&self, limit: Duration, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        self.send(limit, &mut request).await;
        within("a verdict", request).await
    }

    /// Like [`Timed::beyond`], for an acquisition: after the first limit, it asks again until it gives up.
    pub(crate) async fn gives_up<T>(&self, limit: Duration, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        self.send(limit, &mut request).await;
        let asks_again = async {
            loop {
                let verdict = tokio::time::timeout(millis(20), &mut request).await;
                if let Ok(verdict) = verdict {
                    return verdict;
                }
                self.pass(millis(500));
            }
        };
        within("a verdict", asks_again).await
    }

    async fn send<T>(&self, limit: Duration, mut request: impl Future<Output = T> + Unpin) {
        let before = self.proxy.received();
        let is_sent = common::eventually("it is sent", async || self.proxy.received() > before);
        tokio::select! {
            _ = &mut request => panic!("it was answered"),
            () = is_sent => {}
        }
        self.pass(limit + millis(1));
    }

    pub(crate) async fn outlives_its_ttl(&self, lease: &Lease) {
        common::outlives_its_ttl(&self.time, lease).await;
    }

    /// Lets time pass to the deadline of a lease that cannot be renewed. It is lost then, and not before.
    pub(crate) async fn lost_at_deadline(&self, lease: &Lease) -> Lost {
        self.pass(lease.valid_for().saturating_sub(millis(1)));
        let told = tokio::time::timeout(millis(20), lease.lost()).await;
        assert!(told.is_err() && !lease.is_lost(), "too soon: {told:?}");
        self.pass(lease.valid_for());
        assert!(lease.is_lost() && lease.valid_for().is_zero());
        let lost = within("the holder is told", lease.lost()).await;
        assert!(matches!(lost.cause, LossCause::Deadline(_)), "{lost}");
        lost
    }
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

/// Waits until this waiter has the lock, and releases it.
pub(crate) async fn has_its_turn(waiter: JoinHandle<Result<Lease, Error>>) {
    let next = joined("its turn", waiter).await.expect("granted");
    next.release().await.expect("held");
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
    let error = common::store_error(result);
    shows_no_password(&error);
    error
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

/// Damages a server repeatedly, until the test ends or drops it. A failed test must not leave it running.
pub(crate) struct Nemesis {
    stop: Arc<AtomicBool>,
    strikes: Arc<AtomicU32>,
    work: JoinHandle<()>,
}

impl Nemesis {
    /// Calls `strike` each time that `pace` has passed.
    #[allow(
        clippy::disallowed_methods,
        reason = "the pace of a nemesis, not a wait for anything"
    )]
    pub(crate) fn start(
        server: &Arc<RedisServer>,
        pace: Duration,
        strike: impl Fn(&RedisServer) + Send + 'static,
    ) -> Self {
        let server = server.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let strikes = Arc::new(AtomicU32::new(0));
        let done = strikes.clone();
        let work = tokio::task::spawn_blocking(move || {
            while !stopped.load(Ordering::SeqCst) {
                std::thread::sleep(pace);
                strike(&server);
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self {
            stop,
            strikes,
            work,
        }
    }

    /// The number of strikes so far.
    pub(crate) fn strikes(&self) -> u32 {
        self.strikes.load(Ordering::SeqCst)
    }

    /// Stops it, and returns the number of strikes.
    pub(crate) async fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::SeqCst);
        within("its end", &mut self.work)
            .await
            .expect("no command of it failed");
        self.strikes()
    }
}

impl Drop for Nemesis {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

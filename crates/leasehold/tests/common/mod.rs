//! Stores that the clients of a test share, and helpers for the tests.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test crate uses its own part of it"
)]

use std::fmt::Debug;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::slice;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::task::Poll;
use std::thread::panicking;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use leasehold::{
    Client, ClientBuilder, Clock, Error, Fence, Invalid, Lease, Lost, Memory, Mutex, Snapshot,
    StoreError, StoreErrorKind, WaitStatus,
};
use tempfile::TempDir;
use testkit::{RedisCluster, RedisServer, Sentinels, TestTime};
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A time limit that only a fault reaches.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A TTL longer than any test. A test that waits until it passes has failed.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One time for these servers, which have virtual clocks, and for clients with the clock that is returned.
pub(crate) fn test_time(servers: &[RedisServer]) -> (TestTime, Clock) {
    let clock = Clock::manual();
    let wall = clock.wall().duration_since(SystemTime::UNIX_EPOCH);
    let wall = wall.expect("a clock after 1970").as_micros();
    for server in servers {
        server
            .clock()
            .set(u64::try_from(wall).expect("before 586000"));
    }
    let moved = clock.clone();
    let clocks = servers.iter().map(RedisServer::clock);
    (TestTime::new(clocks, move |by| moved.advance(by)), clock)
}

/// The settings of a client with this clock. Only the test lets a request reach its limit, which is the least of [`LONG`] and a third
/// of the TTL: that limit follows the clock. The limits of connections and looks follow real time. No waiter gives up in an outage.
pub(crate) fn timed(clock: &Clock) -> ClientBuilder {
    let builder = Client::builder().clock(clock.clone());
    builder
        .request_timeout(LONG)
        .outage_timeout(Duration::from_secs(24 * 60 * 60))
}

/// The output of `future`, for which clients may have to pause and ask again. Until then time passes in small steps, and no faster than
/// real time: less than the limit of a request for a TTL of `3 * LONG`. So this panics if the future needs such a request to fail.
pub(crate) async fn passing<T>(time: &TestTime, what: &str, future: impl Future<Output = T>) -> T {
    // On a busy machine, the sleep is longer.
    while_it_passes(what, |slept| time.pass(slept.min(STEP * 20)), future).await
}

/// The output of `future`, for which a limit or a deadline has to pass: time passes second by second.
pub(crate) async fn as_seconds_pass<T>(
    time: &TestTime,
    what: &str,
    future: impl Future<Output = T>,
) -> T {
    while_it_passes(what, |_| time.pass(Duration::from_secs(1)), future).await
}

/// The output of `future`. Calls `pass` after each step of real time, with its length.
async fn while_it_passes<T>(
    what: &str,
    pass: impl Fn(Duration),
    future: impl Future<Output = T>,
) -> T {
    let passes = async {
        let real = Clock::system();
        loop {
            let before = real.now();
            sleep(STEP).await;
            pass(real.now().since(before));
        }
    };
    let first = async {
        tokio::select! {
            output = future => output,
            () = passes => unreachable!("time does not end"),
        }
    };
    let Ok(output) = timeout(LONG, first).await else {
        panic!("not within {LONG:?}: {what}");
    };
    output
}

/// A step in which time passes. Also the pause between two looks.
const STEP: Duration = Duration::from_millis(5);

/// Lets half of the lease pass, so that its renewal is due, and waits until it is renewed.
pub(crate) async fn renewed(time: &TestTime, lease: &Lease) {
    let until = lease.valid_until();
    time.pass(lease.valid_for() / 2);
    passing(time, "a renewal", async {
        while lease.valid_until() <= until && !lease.is_lost() {
            sleep(STEP).await;
        }
    })
    .await;
    assert!(!lease.is_lost(), "{:?}", lease.loss());
}

/// Lets the lease be renewed until its first deadline is long over.
pub(crate) async fn outlives_its_ttl(time: &TestTime, lease: &Lease) {
    for _ in 0..4 {
        renewed(time, lease).await;
    }
}

/// A store, with its memory, directory or server.
pub(crate) enum Place {
    Memory(Memory),
    Local(TempDir),
    Redis(Box<RedisServer>),
    Cluster(Borrowed),
    Sentinel(Box<Sentinels>),
    /// The servers that are up, the URL of all, and the server that is down: no other test may take its port.
    Quorum(Vec<RedisServer>, String, Option<Box<RedisServer>>),
}

/// A cluster of three nodes, which tests use one after the other: it takes two seconds to form.
pub(crate) struct Borrowed(Option<RedisCluster>);

/// Those that no test uses.
static IDLE: StdMutex<Vec<RedisCluster>> = StdMutex::new(Vec::new());

impl Borrowed {
    fn any() -> Self {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(Some(idle.unwrap_or_else(|| RedisCluster::start(3, 0))))
    }
}

impl Deref for Borrowed {
    type Target = RedisCluster;

    fn deref(&self) -> &RedisCluster {
        self.0.as_ref().expect("until it is dropped")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(cluster) = self.0.take().filter(|_| !panicking()) {
            for node in cluster.nodes() {
                node.cli(&["FLUSHALL"]);
            }
            IDLE.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(cluster);
        }
    }
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory(Memory::new(Clock::system()))
    }

    pub(crate) fn local() -> Self {
        Self::Local(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start()))
    }

    /// A server that speaks RESP2 only.
    pub(crate) fn resp2() -> Self {
        let options = RedisServer::builder().args(["--rename-command", "HELLO", ""]);
        Self::Redis(Box::new(options.start()))
    }

    pub(crate) fn cluster() -> Self {
        Self::Cluster(Borrowed::any())
    }

    /// A server and one sentinel.
    pub(crate) fn sentinel() -> Self {
        let watched = RedisServer::builder().start_watched(0, RedisServer::builder(), 1);
        Self::Sentinel(Box::new(watched))
    }

    /// Three servers.
    pub(crate) fn quorum() -> Self {
        Self::quorum_of((0..3).map(|_| RedisServer::start()).collect())
    }

    /// A new quorum of these three servers.
    pub(crate) fn quorum_of(servers: Vec<RedisServer>) -> Self {
        mark(&servers, 24 * 60 * 60 * 1_000);
        let hosts: Vec<String> = servers.iter().map(host).collect();
        let url = format!("redis+quorum://{}/?max_ttl=24h", hosts.join(","));
        Self::Quorum(servers, url, None)
    }

    /// Three servers, of which one is down all the time.
    pub(crate) fn majority() -> Self {
        Self::quorum().without_one()
    }

    /// One server of a quorum is down from now on.
    pub(crate) fn without_one(mut self) -> Self {
        if let Self::Quorum(servers, _, down) = &mut self {
            // Each is the lead of a third of the names.
            let server = servers.remove(1);
            server.kill();
            *down = Some(Box::new(server));
        }
        self
    }

    /// This store, and clients with one clock, which only the test moves. Servers keep their own.
    pub(crate) async fn in_test_time<const N: usize>(self) -> (Self, TestTime, [Client; N]) {
        let (time, clock) = test_time(&[]);
        let place = match self {
            Self::Memory(_) => Self::Memory(Memory::new(clock.clone())),
            other => other,
        };
        let mut clients = Vec::new();
        for _ in 0..N {
            clients.push(place.connect(timed(&clock)).await.expect("it works"));
        }
        let clients = clients.try_into().expect("as many");
        (place, time, clients)
    }

    /// Ends a lease at servers, whose clock is not that of the test, and returns when it has ended at each.
    pub(crate) async fn expire_at_servers(&self, name: &str) {
        let servers = match self {
            Self::Cluster(cluster) => slice::from_ref(cluster.primary(cluster.slot(name))),
            _ => self.servers(),
        };
        for server in servers {
            server.cli(&["PEXPIRE", name, "1"]);
            let held = || server.cli(&["EXISTS", name]).int() > 0;
            eventually("it ends", async || !held()).await;
        }
    }

    /// A client with default settings.
    pub(crate) async fn client(&self) -> Client {
        self.connect(Client::builder()).await.expect("it works")
    }

    /// Two of them.
    pub(crate) async fn two(&self) -> (Client, Client) {
        (self.client().await, self.client().await)
    }

    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Result<Client, Error> {
        match self {
            Self::Memory(memory) => builder.embedded(memory),
            _ => builder.connect(&self.url()).await,
        }
    }

    /// The servers that are up.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Memory(_) | Self::Local(_) => &[],
            Self::Redis(server) => slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(watched) => watched.nodes(),
            Self::Quorum(servers, ..) => servers,
        }
    }

    /// True for a quorum, where readers have no fence, and which has no slots.
    pub(crate) fn is_quorum(&self) -> bool {
        matches!(self, Self::Quorum(..))
    }

    /// True if the store notifies a client when another client waits.
    pub(crate) fn tells_wanted(&self) -> bool {
        !matches!(self, Self::Local(_))
    }

    /// The URL of the store. `memory:` does not lead to the memory of this store.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(_) => "memory:".into(),
            Self::Local(dir) => format!("local:{}/locks.db", dir.path().display()),
            Self::Redis(server) => server.url(),
            Self::Cluster(cluster) => format!("redis+cluster://{}", cluster.addresses()),
            Self::Sentinel(watched) => {
                let name = Sentinels::NAME;
                format!("redis+sentinel://{}/{name}", watched.addresses())
            }
            Self::Quorum(_, url, _) => url.clone(),
        }
    }
}

/// Makes tests of behaviours, `async fn(Place)`, for every store.
macro_rules! on_every_store {
    ($($behaviour:ident)*) => {
        $crate::common::on_every_store_of_entries! { $($behaviour)* }
        on_every_store! { quorum: $($behaviour)* }
        on_every_store! { majority: $($behaviour)* }
    };
    ($store:ident: $($behaviour:ident)*) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    super::$behaviour($crate::common::Place::$store()).await;
                }
            )*
        }
    };
}
pub(crate) use on_every_store;

/// Makes tests of behaviours for every store that also keeps cache entries.
macro_rules! on_every_store_of_entries {
    ($($behaviour:ident)*) => {
        $crate::common::on_every_store! { memory: $($behaviour)* }
        $crate::common::on_every_store! { local: $($behaviour)* }
        $crate::common::on_every_store! { redis: $($behaviour)* }
        $crate::common::on_every_store! { resp2: $($behaviour)* }
        $crate::common::on_every_store! { cluster: $($behaviour)* }
        $crate::common::on_every_store! { sentinel: $($behaviour)* }
    };
}
pub(crate) use on_every_store_of_entries;

/// Marks these servers as the nodes of a new quorum, as of their present start.
pub(crate) fn mark(servers: &[RedisServer], longest_ttl_ms: u32) {
    for server in servers {
        let info = server.cli(&["INFO", "server"]).text();
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let id = &run_id.expect("a server has one")[..16];
        let mark = format!("{} {longest_ttl_ms} 0 {id}", servers.len());
        let set = server.cli(&["SET", "leasehold:quorum", &mark]);
        assert_eq!(set.text(), "OK");
    }
}

pub(crate) fn host(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// Takes a lock that must be free, at all nodes that answer. A majority grants it before the last node has its vote: a client that
/// asks meanwhile may get that one, and then waits in no queue.
pub(crate) async fn take(client: &Client, name: &str) -> Lease {
    let lease = client.mutex(name).ttl(TTL).try_acquire().await;
    let Some(lease) = lease.expect("the store answers") else {
        let seen = client.inspect_nodes(name).await;
        panic!("nobody holds it, but it is busy: {seen:?}");
    };
    all_nodes_show(client, name, "its votes", |seen| {
        let holder = seen.holder.as_ref().and_then(|holder| holder.fence);
        holder == Some(lease.fence())
    })
    .await;
    lease
}

/// Polls until each node that is not down shows this state. One that answers later than the others may show it, or not.
pub(crate) async fn all_nodes_show(
    client: &Client,
    name: &str,
    what: &str,
    condition: impl Fn(&Snapshot) -> bool,
) {
    eventually(what, async || {
        let inspected = client.inspect_nodes(name).await.expect("it is open");
        inspected.nodes.iter().all(|view| match &view.seen {
            Ok(seen) => condition(seen),
            Err(error) => error.kind != StoreErrorKind::TimedOut,
        })
    })
    .await;
}

/// The state of the lock, as an operator sees it.
pub(crate) async fn look(client: &Client, name: &str) -> Snapshot {
    client.inspect(name).await.expect("the store answers")
}

/// Starts to wait for `mutex`, and returns when the waiter is in the queue. `waiting` gets `number` and the result of the acquire.
pub(crate) async fn stand_in_line(
    waiting: &mut JoinSet<(usize, Result<Lease, Error>)>,
    number: usize,
    mutex: Mutex,
) {
    let stands = Arc::new(Notify::new());
    let told = stands.clone();
    let mutex = mutex.on_wait(move |_| told.notify_one());
    waiting.spawn(async move { (number, mutex.acquire().await) });
    timeout(LONG, stands.notified()).await.expect("it queues");
}

/// Waits for a lock with a time limit, which passes after the first reply. Returns that reply and the verdict.
pub(crate) async fn out_of_time(
    mutex: Mutex,
    limit: Duration,
    time: &TestTime,
) -> (WaitStatus, Result<Lease, Error>) {
    let (tell, mut told) = unbounded_channel();
    let mutex = mutex.on_wait(move |waiting| {
        tell.send(waiting.clone()).ok();
    });
    let limit_passes = async {
        let first = told.recv().await.expect("it waits");
        time.pass(limit);
        first
    };
    let both = async { tokio::join!(limit_passes, mutex.acquire_within(limit)) };
    timeout(LONG, both).await.expect("the limit")
}

/// The loss that this call reports.
#[track_caller]
pub(crate) fn lost<T: Debug>(result: Result<T, Error>) -> Lost {
    match result {
        Err(Error::Lost(lost)) => lost,
        other => panic!("not lost: {other:?}"),
    }
}

/// Waits until each of these leases is told that it was lost.
pub(crate) async fn all_are_lost(leases: Vec<Lease>) {
    for lease in leases {
        let told = timeout(LONG, lease.lost()).await;
        told.unwrap_or_else(|_| panic!("not told soon: {}", lease.name()));
        lost(lease.release().await);
    }
}

/// Waits until a server that took over has confirmed each of these leases, and releases them. Returns their fences.
pub(crate) async fn all_are_confirmed(leases: Vec<Lease>) -> Vec<Fence> {
    for lease in &leases {
        let what = "the new primary confirms it";
        eventually(what, async || !lease.is_doubtful()).await;
        assert!(!lease.is_lost(), "{:?}", lease.loss());
    }
    let fences = leases.iter().map(Lease::fence).collect();
    let released = timeout(LONG, join_all(leases.into_iter().map(Lease::release))).await;
    for released in released.expect("answers") {
        released.expect("held");
    }
    fences
}

/// The failure of the store that this call reports.
#[track_caller]
pub(crate) fn store_error<T: Debug>(result: Result<T, Error>) -> StoreError {
    match result {
        Err(Error::Store(error)) => error,
        other => panic!("no error of a store: {other:?}"),
    }
}

/// The input that this call refuses.
#[track_caller]
pub(crate) fn invalid<T: Debug>(result: Result<T, Error>) -> Invalid {
    match result {
        Err(Error::Invalid(invalid)) => invalid,
        other => panic!("not refused: {other:?}"),
    }
}

/// Polls until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !condition().await {
            sleep(STEP).await;
        }
    };
    timeout(LONG, looking).await.expect(what);
}

/// A time limit that only a fault reaches. It is less than [`TTL`], and less than [`LONG`], so that the failure shows the state.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// More polls than any future of the library needs.
pub(crate) const MANY: usize = 50;

/// Moments at which to drop a future while the client works in the background: before the request, during it, after it.
pub(crate) const MOMENTS: [Duration; 10] = {
    let mut moments = [Duration::ZERO; 10];
    let mut at = 1;
    while at < moments.len() {
        moments[at] = Duration::from_micros(50 << (at - 1));
        at += 1;
    }
    moments
};

/// Polls `future` up to `n` times and drops it. After the first poll, it polls only when woken. Returns the output, if there is one.
pub(crate) async fn poll_n_times_then_drop<F: Future>(n: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        polls += 1;
        if polls == n {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Calls `drop_at` with 1, 2, ... polls, until the future ends by itself.
pub(crate) async fn at_each_poll(mut drop_at: impl AsyncFnMut(usize) -> bool) {
    for n in 1..=MANY {
        if drop_at(n).await {
            return;
        }
    }
    panic!("it never ends");
}

/// Polls `future` once, and drops it after `event` without another poll.
pub(crate) async fn poll_once_then_drop_after<F: Future>(
    future: F,
    event: impl Future<Output = ()>,
) {
    let mut future = pin!(future);
    // A fast client may have finished by now. Then its output is dropped after the event.
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    event.await;
    drop(first);
}

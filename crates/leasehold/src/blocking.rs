//! The library without `async`, for programs without an executor. Each call blocks the thread until the async call of the same name has
//! ended. Do not use it in async code.
//!
//! ```
//! use leasehold::blocking::Client;
//!
//! let client = Client::embedded()?;
//! let lease = client.mutex("nightly").acquire()?;
//! println!("fence {}", lease.fence());
//! lease.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! With settings of the client:
//!
//! ```
//! use std::time::Duration;
//! use leasehold::blocking::Client;
//!
//! let client = Client::builder().namespace("shop").connect_blocking("memory:")?;
//! let nightly = client.mutex("nightly").ttl(Duration::from_secs(10)).note("report");
//! let fence = nightly.run(|lease| Ok::<_, leasehold::Error>(lease.fence()))?;
//! println!("worked under fence {fence}");
//! # Ok::<(), leasehold::Error>(())
//! ```

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::{ControlFlow, Deref};
use std::time::{Duration, SystemTime};

use crate::runtime::block_on;
use leasehold_core::{ClientId, Fence, HolderView, Owner, Snapshot};

use crate::ClientBuilder;
#[cfg(feature = "redis")]
use crate::QuorumInit;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined};
use crate::error::{Error, Lost, StoreError};
use crate::kind::{AnyKind, Exclusive, Kind, Shared, Slots, sealed};
use crate::lease::{LeaseEnd, LeaseStatus, WaitLimit, WaitStatus, done};
#[cfg(feature = "macros")]
use crate::locked::__locked::{Ran, Wait, acquire};
use crate::once::{PastRun, Turn};
use crate::several::AnyLock;
use crate::store::InspectedNodes;
#[cfg(feature = "timestamp")]
use crate::timestamp::Unit;

/// A blocking [`Client`](crate::Client).
///
/// ```
/// use std::time::Duration;
/// use leasehold::blocking::Client;
///
/// let client = Client::embedded()?;                    // or Client::connect("redis://127.0.0.1/")?
/// if let Some(lease) = client.mutex("report").try_acquire()? {
///     lease.release_after(Duration::from_secs(60))?;
/// }
/// client.close();
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Client(crate::Client);

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

impl From<Client> for crate::Client {
    fn from(client: Client) -> Self {
        client.0
    }
}

impl ClientBuilder {
    /// Connects to the store at `url`, and blocks until that is done; see [`ClientBuilder::connect`].
    ///
    /// ```
    /// let client = leasehold::Client::builder().namespace("shop").connect_blocking("memory:")?;
    /// assert!(client.mutex("orders:42").try_acquire()?.is_some());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect_blocking(self, url: &str) -> Result<Client, Error> {
        block_on(self.connect(url)).map(Client)
    }

    /// Connects to a quorum of servers, and blocks until that is done; see [`ClientBuilder::connect_quorum`].
    ///
    /// ```no_run
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let builder = leasehold::Client::builder().quorum_durable(true);
    /// let client = builder.connect_quorum_blocking(servers)?;
    /// assert!(client.mutex("orders:42").try_acquire()?.is_some());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_quorum`].
    #[cfg(feature = "redis")]
    pub fn connect_quorum_blocking(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Client, Error> {
        block_on(self.connect_quorum(urls)).map(Client)
    }

    /// Marks the servers of a new quorum; see [`ClientBuilder::init_quorum`].
    ///
    /// ```no_run
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let outcome = leasehold::Client::builder().init_quorum_blocking(servers, false)?;
    /// println!("{outcome:?}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::init_quorum`].
    #[cfg(feature = "redis")]
    pub fn init_quorum_blocking(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
        again: bool,
    ) -> Result<QuorumInit, Error> {
        block_on(self.init_quorum(urls, again))
    }

    /// Gathers the facts that decide whether the store at `url` is fit for locks; see [`ClientBuilder::examine`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let how = Examination::new(Duration::from_secs(30)).quick(true);
    /// let examined = Client::builder().examine_blocking("redis://127.0.0.1/", &how)?;
    /// println!("{examined:?}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::examine`].
    #[cfg(feature = "doctor")]
    pub fn examine_blocking(self, url: &str, how: &Examination) -> Result<Examined, Error> {
        block_on(self.examine(url, how))
    }

    /// Gathers the facts about a quorum of servers; see [`ClientBuilder::examine_quorum`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let how = Examination::new(Duration::from_secs(30));
    /// println!("{:?}", Client::builder().examine_quorum_blocking(servers, &how)?);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ClientBuilder::examine_quorum`].
    #[cfg(all(feature = "doctor", feature = "redis"))]
    pub fn examine_quorum_blocking(
        self,
        urls: impl IntoIterator<Item: AsRef<str>>,
        how: &Examination,
    ) -> Result<Examined, Error> {
        block_on(self.examine_quorum(urls, how))
    }
}

impl Client {
    /// See [`Client::connect`](crate::Client::connect).
    ///
    /// ```
    /// use leasehold::blocking::Client;
    ///
    /// let client = Client::connect("memory:")?;
    /// client.mutex("orders:42").acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect_blocking(url)
    }

    /// See [`Client::connect_quorum`](crate::Client::connect_quorum).
    ///
    /// ```no_run
    /// use leasehold::blocking::Client;
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let client = Client::connect_quorum(servers)?;
    /// client.mutex("orders:42").acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn connect_quorum(urls: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, Error> {
        Self::builder().connect_quorum_blocking(urls)
    }

    /// See [`Client::embedded`](crate::Client::embedded).
    ///
    /// ```
    /// use leasehold::blocking::Client;
    ///
    /// let client = Client::embedded()?;
    /// assert_eq!(client.store(), "memory:");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn embedded() -> Result<Self, Error> {
        crate::Client::embedded().map(Self)
    }

    /// A builder with the default settings: end it with [`ClientBuilder::connect_blocking`].
    ///
    /// ```
    /// use leasehold::blocking::Client;
    ///
    /// let client = Client::builder().namespace("shop").connect_blocking("memory:")?;
    /// assert!(client.names()?.is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn builder() -> ClientBuilder {
        crate::Client::builder()
    }

    /// See [`Client::mutex`](crate::Client::mutex).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let orders = client.mutex("orders:42");
    /// orders.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Lock(self.0.mutex(name))
    }

    /// See [`Client::rw_lock`](crate::Client::rw_lock).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let config = client.rw_lock("config");
    /// let read = config.read().acquire()?;
    /// assert!(config.write().try_acquire()?.is_none());
    /// read.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rw_lock(name))
    }

    /// See [`Client::semaphore`](crate::Client::semaphore).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let permit = client.semaphore("gpu", 4).acquire()?;
    /// assert_eq!(permit.slot().number, 1);
    /// permit.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, slots: u16) -> Semaphore {
        Lock(self.0.semaphore(name, slots))
    }

    /// See [`Client::all`](crate::Client::all).
    pub fn all<const N: usize>(&self, locks: [&dyn AnyLock; N]) -> All {
        All(self.0.all(locks))
    }

    /// See [`Client::election`](crate::Client::election).
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election(self.0.election(name))
    }

    /// See [`Client::once`](crate::Client::once).
    pub fn once(&self, name: impl AsRef<str>, firing: impl AsRef<str>) -> Once {
        Once(self.0.once(name, firing))
    }

    /// See [`Client::timestamp_lock`](crate::Client::timestamp_lock).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// client.timestamp_lock("nightly").acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[cfg(feature = "timestamp")]
    pub fn timestamp_lock(&self, name: impl AsRef<str>) -> TimestampLock {
        TimestampLock(self.0.timestamp_lock(name))
    }

    /// See [`Client::detached`](crate::Client::detached).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// let again = client.detached("orders:42", detached.token())?;
    /// again.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn detached(&self, name: impl AsRef<str>, token: &str) -> Result<Detached, Error> {
        self.0.detached(name, token).map(Detached)
    }

    /// See [`Client::store`](crate::Client::store).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// assert_eq!(client.store(), "memory:");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn store(&self) -> &str {
        self.0.store()
    }

    /// See [`Client::inspect`](crate::Client::inspect).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let holder = client.inspect("orders:42")?.holder;
    /// assert_eq!(holder.and_then(|holder| holder.fence), Some(lease.fence()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        block_on(self.0.inspect(name))
    }

    /// See [`Client::inspect_many`](crate::Client::inspect_many).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _lease = client.mutex("orders:42").acquire()?;
    /// let seen = client.inspect_many(["orders:41", "orders:42"]);
    /// let held = seen.iter().flatten().filter(|seen| seen.holder.is_some());
    /// assert_eq!(held.count(), 1);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect_many(
        &self,
        names: impl IntoIterator<Item: AsRef<str>>,
    ) -> Vec<Result<Snapshot, Error>> {
        block_on(self.0.inspect_many(names))
    }

    /// See [`Client::inspect_all`](crate::Client::inspect_all).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _lease = client.mutex("orders:42").acquire()?;
    /// assert_eq!(client.inspect_all(|name| name.starts_with("orders:"))?.len(), 1);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect_all(
        &self,
        wanted: impl FnMut(&str) -> bool,
    ) -> Result<BTreeMap<String, Result<Snapshot, Error>>, Error> {
        block_on(self.0.inspect_all(wanted))
    }

    /// See [`Client::inspect_nodes`](crate::Client::inspect_nodes).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let inspected = client.inspect_nodes("orders:42")?;
    /// assert_eq!((inspected.votes(), inspected.nodes.len()), (1, 1));
    /// # drop(lease);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn inspect_nodes(&self, name: impl AsRef<str>) -> Result<InspectedNodes, Error> {
        block_on(self.0.inspect_nodes(name))
    }

    /// See [`Client::break_lock`](crate::Client::break_lock).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// assert!(client.break_lock("orders:42", lease.fence())?);
    /// assert!(client.inspect("orders:42")?.holder.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn break_lock(&self, name: impl AsRef<str>, fence: Fence) -> Result<bool, Error> {
        block_on(self.0.break_lock(name, fence))
    }

    /// See [`Client::break_holder`](crate::Client::break_holder).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let permit = client.semaphore("gpu", 4).acquire()?;
    /// assert!(client.break_holder("gpu", permit.owner())?);
    /// assert!(permit.release().is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn break_holder(&self, name: impl AsRef<str>, owner: &Owner) -> Result<bool, Error> {
        block_on(self.0.break_holder(name, owner))
    }

    /// See [`Client::names`](crate::Client::names).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _lease = client.mutex("orders:42").acquire()?;
    /// assert_eq!(client.names()?, ["orders:42"]);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn names(&self) -> Result<Vec<String>, Error> {
        block_on(self.0.names())
    }

    /// See [`Client::longest_ttl`](crate::Client::longest_ttl).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// assert_eq!(client.longest_ttl().as_secs(), 24 * 60 * 60);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn longest_ttl(&self) -> Duration {
        self.0.longest_ttl()
    }

    /// See [`Client::id`](crate::Client::id).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// assert_ne!(client.id(), leasehold::blocking::Client::embedded()?.id());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn id(&self) -> ClientId {
        self.0.id()
    }

    /// See [`Client::close`](crate::Client::close).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// assert!(client.close(), "all releases are confirmed");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn close(&self) -> bool {
        block_on(self.0.close())
    }

    /// See [`Client::close_within`](crate::Client::close_within).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// assert!(client.close_within(Duration::from_secs(2)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn close_within(&self, limit: Duration) -> bool {
        block_on(self.0.close_within(limit))
    }
}

/// A blocking [`Mutex`](crate::Mutex).
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Error, blocking::Client};
///
/// let client = Client::embedded()?;
/// let orders = client.mutex("orders:42").ttl(Duration::from_secs(10));
/// match orders.acquire_within(Duration::from_secs(5)) {
///     Ok(lease) => lease.release()?,
///     Err(Error::Timeout(timeout)) => println!("held by {:?}", timeout.holder),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is acquired"]
pub struct Lock<K: Kind>(crate::Lock<K>);

/// A blocking [`Mutex`](crate::Mutex).
pub type Mutex = Lock<Exclusive>;

/// A blocking [`ReadLock`](crate::ReadLock).
pub type ReadLock = Lock<Shared>;

/// A blocking [`Semaphore`](crate::Semaphore).
pub type Semaphore = Lock<Slots>;

/// A blocking [`RwLock`](crate::RwLock).
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct RwLock(crate::RwLock);

impl RwLock {
    /// See [`RwLock::read`](crate::RwLock::read).
    pub fn read(&self) -> ReadLock {
        Lock(self.0.read())
    }

    /// See [`RwLock::write`](crate::RwLock::write).
    pub fn write(&self) -> Mutex {
        Lock(self.0.write())
    }
}

impl<K: Kind> From<Lock<K>> for crate::Lock<K> {
    fn from(lock: Lock<K>) -> Self {
        lock.0
    }
}

impl<K: Kind> sealed::Sealed for Lock<K> {}

impl<K: Kind> AnyLock for Lock<K> {
    fn any(&self) -> crate::Lock<AnyKind> {
        self.0.any()
    }
}

impl Mutex {
    /// See [`Mutex::once`](crate::Mutex::once).
    pub fn once(&self, firing: impl AsRef<str>) -> Once {
        Once(self.0.once(firing))
    }

    /// See [`Mutex::store_time`](crate::Mutex::store_time).
    pub fn store_time(&self) -> Result<SystemTime, Error> {
        block_on(self.0.store_time())
    }
}

impl<K: Kind> Lock<K> {
    /// Applies settings of the async mutex: `mutex.map(|mutex| mutex.ttl(ttl).note("nightly"))`.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let mutex = client.mutex("orders:42").map(|mutex| mutex.ttl(Duration::from_secs(5)).note("nightly"));
    /// mutex.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn map(self, change: impl FnOnce(crate::Lock<K>) -> crate::Lock<K>) -> Self {
        Self(change(self.0))
    }

    /// See [`Mutex::ttl`](crate::Mutex::ttl): 10 ms to 24 h, default 30 s.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").ttl(Duration::from_secs(5)).acquire()?;
    /// assert!(lease.valid_for() <= Duration::from_secs(5));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|mutex| mutex.ttl(ttl))
    }

    /// See [`Mutex::note`](crate::Mutex::note): at most 128 bytes.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").note("nightly").acquire()?;
    /// assert!(format!("{:?}", client.inspect("orders:42")?).contains("nightly"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn note(self, note: impl Into<String>) -> Self {
        self.map(|mutex| mutex.note(note))
    }

    /// See [`Mutex::auto_renew`](crate::Mutex::auto_renew): yes by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").ttl(Duration::from_millis(50)).auto_renew(false).acquire()?;
    /// lease.wait_lost();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn auto_renew(self, auto_renew: bool) -> Self {
        self.map(|mutex| mutex.auto_renew(auto_renew))
    }

    /// See [`Mutex::max_hold`](crate::Mutex::max_hold): at least 10 ms, no limit by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").max_hold(Duration::from_millis(50)).acquire()?;
    /// lease.wait_lost();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.map(|mutex| mutex.max_hold(max_hold))
    }

    /// See [`Mutex::linger`](crate::Mutex::linger): not at all by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let orders = client.mutex("orders:42").linger(Duration::from_millis(50));
    /// orders.acquire()?.release()?;
    /// orders.acquire()?.release()?; // without a request, if it follows in time
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn linger(self, linger: Duration) -> Self {
        self.map(|mutex| mutex.linger(linger))
    }

    /// See [`Mutex::at_least`](crate::Mutex::at_least): at most 24 h, not at all by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let report = client.mutex("report").at_least(Duration::from_secs(60));
    /// report.acquire()?.release()?;
    /// assert!(report.try_acquire()?.is_none(), "taken for a minute");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn at_least(self, at_least: Duration) -> Self {
        self.map(|mutex| mutex.at_least(at_least))
    }

    /// See [`Mutex::on_wait`](crate::Mutex::on_wait).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// let waiting = client.mutex("orders:42").on_wait(|status| println!("{status:?}"));
    /// assert!(waiting.acquire_within(Duration::from_millis(20)).is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn on_wait(self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.map(|mutex| mutex.on_wait(watch))
    }

    /// See [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// assert!(!lease.is_lost());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[doc(alias = "lock")]
    pub fn acquire(&self) -> Result<Lease<K>, Error> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// See [`Mutex::acquire_within`](crate::Mutex::acquire_within).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// let late = client.mutex("orders:42").acquire_within(Duration::from_millis(20));
    /// assert!(matches!(late, Err(leasehold::Error::Timeout(_))));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire_within(&self, limit: Duration) -> Result<Lease<K>, Error> {
        block_on(self.0.acquire_within(limit)).map(Lease)
    }

    /// See [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// assert!(client.mutex("orders:42").try_acquire()?.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[doc(alias = "try_lock")]
    pub fn try_acquire(&self) -> Result<Option<Lease<K>>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Lease))
    }

    /// [`Mutex::acquire`], then [`Lease::run`].
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let orders = client.mutex("orders:42");
    /// let fence = orders.run(|lease| Ok::<_, leasehold::Error>(lease.fence()))?;
    /// println!("worked under fence {fence}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As these methods.
    #[doc(alias("with_lock", "using"))]
    pub fn run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Lease<K>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.acquire()?.run(work)
    }

    /// [`Mutex::acquire_within`], then [`Lease::run`].
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let orders = client.mutex("orders:42");
    /// let seven = orders.run_within(Duration::from_secs(5), |_| Ok::<_, leasehold::Error>(7))?;
    /// assert_eq!(seven, 7);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As these methods.
    pub fn run_within<T, E: From<Error>>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Lease<K>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.acquire_within(limit)?.run(work)
    }

    /// [`Mutex::try_acquire`], then [`Lease::run`]. `None` when the lock is busy; then `work` does not begin.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// let ran = client.mutex("orders:42").try_run(|_| Ok::<_, leasehold::Error>(7))?;
    /// assert!(ran.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As these methods.
    pub fn try_run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Lease<K>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let lease = self.try_acquire()?;
        lease.map(|lease| lease.run(work)).transpose()
    }
}

/// Runs the body of a function that is not `async` under the lock: for the code that `#[locked]` writes, and no stable API.
#[doc(hidden)]
#[cfg(feature = "macros")]
pub fn __run_locked<K: Kind, R>(
    lock: impl Into<crate::Lock<K>>,
    wait: Wait,
    work: impl FnOnce(&Lease<K>) -> R,
) -> Ran<R> {
    let lease = Lease(block_on(acquire(&lock.into(), wait))?);
    if let Some(lost) = lease.loss() {
        return Err(lost.into());
    }
    let output = work(&lease);
    Ok((output, lease.release()))
}

/// A blocking [`Once`](crate::Once).
///
/// ```
/// # let client = leasehold::blocking::Client::embedded()?;
/// use leasehold::{Error, Turn};
///
/// let nightly = client.once("nightly", "2026-11-27").tries(3);
/// let turn = nightly.run(|lease| Ok::<_, Error>(lease.fence()))?;
/// assert!(matches!(turn, Turn::Mine(_)));
/// let again = nightly.try_run(|_| Ok::<_, Error>(panic!("it is done")))?;
/// assert!(matches!(again, Some(Turn::Done(_))));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a firing does nothing until it is run"]
pub struct Once(crate::Once);

impl Once {
    /// See [`Once::tries`](crate::Once::tries): no limit by default.
    pub fn tries(self, tries: u32) -> Self {
        Self(self.0.tries(tries))
    }

    /// See [`Once::keep`](crate::Once::keep): 1 s to 400 days, default 7 days.
    pub fn keep(self, keep: Duration) -> Self {
        Self(self.0.keep(keep))
    }

    /// See [`Once::run`](crate::Once::run). A loss does not stop `work`. It is told after it, and the firing stays open.
    pub fn run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Turn<T>, E> {
        let turn = self.run_if(WaitLimit::Forever, work)?;
        turn.ok_or_else(|| Error::from(StoreError::closed()).into())
    }

    /// See [`Once::run_within`](crate::Once::run_within), and [`Once::run`].
    pub fn run_within<T, E: From<Error>>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Turn<T>, E> {
        let turn = self.run_if(WaitLimit::Within(limit), work)?;
        turn.ok_or_else(|| Error::from(StoreError::closed()).into())
    }

    /// See [`Once::try_run`](crate::Once::try_run), and [`Once::run`].
    pub fn try_run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Option<Turn<T>>, E> {
        self.run_if(WaitLimit::Once, work)
    }

    fn run_if<T, E: From<Error>>(
        &self,
        limit: WaitLimit,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<Option<Turn<T>>, E> {
        let turn = block_on(self.0.enter(limit))?;
        let done = turn.map(|turn| {
            turn.and_then(|lease| {
                let lease = Lease(lease);
                let output = work(&lease)?;
                block_on(self.0.leave(lease.0))?;
                Ok(output)
            })
        });
        done.transpose()
    }

    /// See [`Once::begin`](crate::Once::begin).
    pub fn begin(&self, lease: &Lease) -> Result<Turn<u32>, Error> {
        block_on(self.0.begin(&lease.0))
    }

    /// See [`Once::finish`](crate::Once::finish).
    pub fn finish(&self, lease: &Lease) -> Result<(), Error> {
        block_on(self.0.finish(&lease.0))
    }

    /// See [`Once::past`](crate::Once::past).
    pub fn past(&self) -> Result<Option<PastRun>, Error> {
        block_on(self.0.past())
    }
}

/// Several locks that are taken together: a blocking [`All`](crate::All).
///
/// ```
/// # let client = leasehold::blocking::Client::embedded()?;
/// let (from, to) = (client.mutex("account:7"), client.mutex("account:3"));
/// let both = client.all([&from, &to]);
/// let count = both.run(|leases| Ok::<_, leasehold::Error>(leases.iter().count()))?;
/// assert_eq!(count, 2);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is acquired"]
pub struct All(crate::All);

impl All {
    /// See [`All::and`](crate::All::and).
    pub fn and(self, lock: &dyn AnyLock) -> Self {
        Self(self.0.and(lock))
    }

    /// See [`All::acquire`](crate::All::acquire).
    pub fn acquire(&self) -> Result<Leases, Error> {
        block_on(self.0.acquire()).map(Leases)
    }

    /// See [`All::acquire_within`](crate::All::acquire_within).
    pub fn acquire_within(&self, limit: Duration) -> Result<Leases, Error> {
        block_on(self.0.acquire_within(limit)).map(Leases)
    }

    /// See [`All::try_acquire`](crate::All::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Leases>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Leases))
    }

    /// [`All::acquire`], then the work, then [`Leases::release`]. A loss does not stop the work, and is told after it.
    ///
    /// # Errors
    /// As [`All::run`](crate::All::run).
    pub fn run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Leases) -> Result<T, E>,
    ) -> Result<T, E> {
        let leases = self.acquire()?;
        done(work(&leases), leases.release())
    }
}

/// Blocking [`Leases`](crate::Leases). They dereference to that type for the methods that do not wait.
#[derive(Debug)]
#[must_use = "dropping the leases releases the locks"]
pub struct Leases(crate::Leases);

impl Leases {
    /// See [`Leases::release`](crate::Leases::release).
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`Leases::release_after`](crate::Leases::release_after).
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }
}

impl Deref for Leases {
    type Target = crate::Leases;

    fn deref(&self) -> &crate::Leases {
        &self.0
    }
}

/// A blocking [`Election`](crate::Election).
///
/// ```
/// use std::ops::ControlFlow;
///
/// # let client = leasehold::blocking::Client::embedded()?;
/// let election = client.election("indexer").note("10.0.0.7:8080");
/// let number = election.lead(|term| ControlFlow::Break(term.fence()))?;
/// assert!(election.leader()?.is_none(), "it has stepped down");
/// # let _ = number; Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "an election does nothing until someone campaigns"]
pub struct Election(crate::Election);

impl Election {
    /// See [`Election::ttl`](crate::Election::ttl): 10 s by default.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// See [`Election::note`](crate::Election::note): at most 128 bytes.
    pub fn note(self, note: impl Into<String>) -> Self {
        Self(self.0.note(note))
    }

    /// See [`Election::max_term`](crate::Election::max_term): no limit by default.
    pub fn max_term(self, max_term: Duration) -> Self {
        Self(self.0.max_term(max_term))
    }

    /// See [`Election::campaign`](crate::Election::campaign).
    pub fn campaign(&self) -> Result<Lease, Error> {
        block_on(self.0.campaign()).map(Lease)
    }

    /// See [`Election::lead`](crate::Election::lead). A loss does not stop `work`, which may look at its term. What it returns after a loss does
    /// not count.
    pub fn lead<B>(&self, mut work: impl FnMut(LossWatch) -> ControlFlow<B>) -> Result<B, Error> {
        block_on(self.0.lead(|term| ready(work(LossWatch(term)))))
    }

    /// See [`Election::leader`](crate::Election::leader).
    pub fn leader(&self) -> Result<Option<HolderView>, Error> {
        block_on(self.0.leader())
    }

    /// See [`Election::watch_leader`](crate::Election::watch_leader).
    pub fn watch_leader(&self, every: Duration) -> LeaderWatch {
        LeaderWatch(self.0.watch_leader(every))
    }
}

/// A blocking [`LeaderWatch`](crate::LeaderWatch).
#[derive(Debug)]
#[must_use = "a watch does nothing until it is asked"]
pub struct LeaderWatch(crate::LeaderWatch);

impl LeaderWatch {
    /// See [`LeaderWatch::changed`](crate::LeaderWatch::changed).
    pub fn changed(&mut self) -> Result<Option<HolderView>, Error> {
        block_on(self.0.changed())
    }
}

/// A blocking [`Lease`](crate::Lease). It dereferences to that type for the methods that do not wait.
///
/// ```
/// use leasehold::blocking::Client;
///
/// let lease = Client::embedded()?.mutex("orders:42").acquire()?;
/// for step in 0..3 {
///     if lease.is_lost() {
///         break;
///     }
///     println!("step {step}, under fence {}", lease.fence());
/// }
/// lease.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a lease releases the lock"]
pub struct Lease<K: Kind = Exclusive>(crate::Lease<K>);

impl<K: Kind> Deref for Lease<K> {
    type Target = crate::Lease<K>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Kind> Lease<K> {
    /// Waits until the lease is lost; see [`Lease::lost`](crate::Lease::lost).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").max_hold(std::time::Duration::from_millis(50)).acquire()?;
    /// let lost = lease.wait_lost();
    /// println!("{lost}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`Lease::watch`](crate::Lease::watch).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let watch = lease.watch();
    /// let watcher = std::thread::spawn(move || watch.wait_ended());
    /// lease.release()?;
    /// println!("{:?}", watcher.join().expect("it does not panic"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn watch(&self) -> LossWatch<K> {
        LossWatch(self.0.watch())
    }

    /// See [`Lease::extend`](crate::Lease::extend).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// lease.extend(Duration::from_secs(60))?;
    /// assert!(lease.valid_for() > Duration::from_secs(30));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`Lease::release`](crate::Lease::release).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// client.mutex("orders:42").acquire()?.release()?;
    /// assert!(client.inspect("orders:42")?.holder.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`Lease::release_after`](crate::Lease::release_after).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// client.mutex("report").acquire()?.release_after(Duration::from_secs(60))?;
    /// assert!(client.mutex("report").try_acquire()?.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }

    /// Runs `work` under the lease, then releases the lease. Blocking work is not cancelled: check
    /// [`Lease::is_lost`](crate::Lease::is_lost) between its steps, or use a [`LossWatch`] in another thread.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// assert_eq!(lease.run(|_| Ok::<_, leasehold::Error>(7))?, 7);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Lease::run`](crate::Lease::run). A loss before `work` is told without it, one during `work` after it.
    pub fn run<T, E: From<Error>>(self, work: impl FnOnce(&Self) -> Result<T, E>) -> Result<T, E> {
        if let Some(lost) = self.loss() {
            return Err(Error::from(lost).into());
        }
        done(work(&self), self.release())
    }
}

impl Lease {
    /// See [`Lease::detach`](crate::Lease::detach).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// println!("pass this to another process: {}", detached.token());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn detach(self, ttl: Duration) -> Result<(Detached, LeaseStatus), Error> {
        let (detached, status) = block_on(self.0.detach(ttl))?;
        Ok((Detached(detached), status))
    }
}

/// A blocking [`LossWatch`](crate::LossWatch). It dereferences to that type for the methods that do not wait.
#[derive(Debug, Clone)]
#[must_use = "a watch does nothing until it is asked"]
pub struct LossWatch<K: Kind = Exclusive>(crate::LossWatch<K>);

impl<K: Kind> Deref for LossWatch<K> {
    type Target = crate::LossWatch<K>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Kind> LossWatch<K> {
    /// Waits until the lease is lost; see [`LossWatch::lost`](crate::LossWatch::lost).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").max_hold(Duration::from_millis(50)).acquire()?;
    /// let watch = lease.watch();
    /// println!("{}", watch.wait_lost());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// Waits until the lease has ended; see [`LossWatch::ended`](crate::LossWatch::ended).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let watch = lease.watch();
    /// lease.release()?;
    /// println!("{:?}", watch.wait_ended());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_ended(&self) -> LeaseEnd {
        block_on(self.0.ended())
    }
}

/// A blocking [`Detached`](crate::Detached). It dereferences to that type for the methods that do not wait.
#[derive(Debug, Clone)]
pub struct Detached(crate::Detached);

impl Deref for Detached {
    type Target = crate::Detached;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Detached {
    /// See [`Detached::renew`](crate::Detached::renew).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// detached.renew(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn renew(&self, ttl: Duration) -> Result<LeaseStatus, Error> {
        block_on(self.0.renew(ttl))
    }

    /// See [`Detached::check`](crate::Detached::check).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// detached.check()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn check(&self) -> Result<LeaseStatus, Error> {
        block_on(self.0.check())
    }

    /// See [`Detached::release`](crate::Detached::release).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// detached.release()?;
    /// assert!(client.mutex("orders:42").try_acquire()?.is_some());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }
}

/// A blocking [`TimestampLock`](crate::TimestampLock).
#[cfg(feature = "timestamp")]
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct TimestampLock(crate::TimestampLock);

#[cfg(feature = "timestamp")]
impl TimestampLock {
    /// The lock of this name; see [`TimestampLock::new`](crate::TimestampLock::new).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// use leasehold::blocking::TimestampLock;
    ///
    /// TimestampLock::new(&client, "nightly").acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn new(client: &Client, name: impl AsRef<str>) -> Self {
        client.timestamp_lock(name)
    }

    /// Applies settings of the async lock: `lock.map(|lock| lock.ttl(ttl).unit(Unit::Millis))`.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let lock = client.timestamp_lock("nightly").map(|lock| lock.ttl(Duration::from_secs(60)));
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn map(self, change: impl FnOnce(crate::TimestampLock) -> crate::TimestampLock) -> Self {
        Self(change(self.0))
    }

    /// See [`TimestampLock::ttl`](crate::TimestampLock::ttl): 10 ms to 24 h, default 30 s.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let lock = client.timestamp_lock("nightly").ttl(Duration::from_secs(60));
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|lock| lock.ttl(ttl))
    }

    /// See [`TimestampLock::unit`](crate::TimestampLock::unit): seconds by default.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let lock = client.timestamp_lock("nightly").unit(leasehold::timestamp::Unit::Millis);
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn unit(self, unit: Unit) -> Self {
        self.map(|lock| lock.unit(unit))
    }

    /// See [`TimestampLock::auto_renew`](crate::TimestampLock::auto_renew): yes by default.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let hold = client.timestamp_lock("nightly").auto_renew(false).acquire()?;
    /// hold.wait_lost();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn auto_renew(self, auto_renew: bool) -> Self {
        self.map(|lock| lock.auto_renew(auto_renew))
    }

    /// See [`TimestampLock::without_scripts`](crate::TimestampLock::without_scripts).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let lock = client.timestamp_lock("nightly").without_scripts();
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn without_scripts(self) -> Self {
        self.map(crate::TimestampLock::without_scripts)
    }

    /// See [`TimestampLock::on_wait`](crate::TimestampLock::on_wait).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let lock = client.timestamp_lock("nightly").on_wait(|status| println!("{status:?}"));
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn on_wait(self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.map(|lock| lock.on_wait(watch))
    }

    /// See [`TimestampLock::acquire`](crate::TimestampLock::acquire).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// hold.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire(&self) -> Result<TimestampHold, Error> {
        block_on(self.0.acquire()).map(TimestampHold)
    }

    /// See [`TimestampLock::acquire_within`](crate::TimestampLock::acquire_within).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let hold = client.timestamp_lock("nightly").acquire_within(Duration::from_secs(5))?;
    /// hold.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire_within(&self, limit: Duration) -> Result<TimestampHold, Error> {
        block_on(self.0.acquire_within(limit)).map(TimestampHold)
    }

    /// See [`TimestampLock::try_acquire`](crate::TimestampLock::try_acquire).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// if let Some(hold) = client.timestamp_lock("nightly").try_acquire()? {
    ///     hold.release()?;
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn try_acquire(&self) -> Result<Option<TimestampHold>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(TimestampHold))
    }
}

/// A blocking [`TimestampHold`](crate::TimestampHold). It dereferences to that type for the methods that do not wait.
#[cfg(feature = "timestamp")]
#[derive(Debug)]
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold(crate::TimestampHold);

#[cfg(feature = "timestamp")]
impl Deref for TimestampHold {
    type Target = crate::TimestampHold;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[cfg(feature = "timestamp")]
impl TimestampHold {
    /// Waits until the hold is lost; see [`TimestampHold::lost`](crate::TimestampHold::lost).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// println!("{}", hold.wait_lost());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`TimestampHold::extend`](crate::TimestampHold::extend).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// hold.extend(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`TimestampHold::release`](crate::TimestampHold::release).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// client.timestamp_lock("nightly").acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`TimestampHold::release_after`](crate::TimestampHold::release_after).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// hold.release_after(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }
}

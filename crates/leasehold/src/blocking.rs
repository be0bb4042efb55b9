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
//! let ran = nightly.run(|lease| lease.fence())?;
//! println!("worked under fence {}", ran.confirmed()?);
//! # Ok::<(), leasehold::Error>(())
//! ```

mod lease;
mod mutex;
#[cfg(feature = "timestamp")]
mod timestamp;

use std::time::Duration;

use leasehold_core::{ClientId, Fence, Snapshot};
use pollster::block_on;

pub use self::lease::{Detached, Lease, LossWatch};
pub use self::mutex::Mutex;
#[cfg(feature = "timestamp")]
pub use self::timestamp::{TimestampHold, TimestampLock};
use crate::ClientBuilder;
#[cfg(feature = "redis")]
use crate::QuorumInit;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined};
use crate::error::Error;
use crate::store::InspectedNodes;

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
        Mutex(self.0.mutex(name))
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
}

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

#[cfg(feature = "cache")]
mod cache;
mod mutex;
#[cfg(feature = "timestamp")]
mod timestamp;

use std::time::Duration;

use leasehold_core::{ClientId, Fence, Snapshot};
use pollster::block_on;

#[cfg(feature = "cache")]
pub use self::cache::{Cache, GetManyOrRefresh, GetOrRefresh};
pub use self::mutex::{Detached, Lease, LossWatch, Mutex};
#[cfg(feature = "timestamp")]
pub use self::timestamp::{TimestampHold, TimestampLock};
use crate::ClientBuilder;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined};
use crate::error::Error;

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
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect_blocking(self, url: &str) -> Result<Client, Error> {
        block_on(self.connect(url)).map(Client)
    }

    /// Gathers the facts that decide whether the store at `url` is fit for locks; see [`ClientBuilder::examine`].
    ///
    /// # Errors
    /// As [`ClientBuilder::examine`].
    #[cfg(feature = "doctor")]
    pub fn examine_blocking(self, url: &str, how: &Examination) -> Result<Examined, Error> {
        block_on(self.examine(url, how))
    }
}

impl Client {
    /// See [`Client::connect`](crate::Client::connect).
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect_blocking(url)
    }

    /// See [`Client::embedded`](crate::Client::embedded).
    pub fn embedded() -> Result<Self, Error> {
        crate::Client::embedded().map(Self)
    }

    /// A builder with the default settings: end it with [`ClientBuilder::connect_blocking`].
    pub fn builder() -> ClientBuilder {
        crate::Client::builder()
    }

    /// See [`Client::mutex`](crate::Client::mutex).
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex(self.0.mutex(name))
    }

    /// See [`Client::timestamp_lock`](crate::Client::timestamp_lock).
    #[cfg(feature = "timestamp")]
    pub fn timestamp_lock(&self, name: impl AsRef<str>) -> TimestampLock {
        TimestampLock(self.0.timestamp_lock(name))
    }

    /// See [`Client::cache`](crate::Client::cache).
    #[cfg(feature = "cache")]
    pub fn cache(&self) -> Cache {
        Cache(self.0.cache())
    }

    /// See [`Client::inspect`](crate::Client::inspect).
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        block_on(self.0.inspect(name))
    }

    /// See [`Client::break_lock`](crate::Client::break_lock).
    pub fn break_lock(&self, name: impl AsRef<str>, fence: Fence) -> Result<bool, Error> {
        block_on(self.0.break_lock(name, fence))
    }

    /// See [`Client::detached`](crate::Client::detached).
    pub fn detached(&self, name: impl AsRef<str>, token: &str) -> Result<Detached, Error> {
        self.0.detached(name, token).map(Detached)
    }

    /// See [`Client::names`](crate::Client::names).
    pub fn names(&self) -> Result<Vec<String>, Error> {
        block_on(self.0.names())
    }

    /// See [`Client::store`](crate::Client::store).
    pub fn store(&self) -> &str {
        self.0.store()
    }

    /// See [`Client::id`](crate::Client::id).
    pub fn id(&self) -> ClientId {
        self.0.id()
    }

    /// See [`Client::close`](crate::Client::close).
    pub fn close(&self) -> bool {
        block_on(self.0.close())
    }

    /// See [`Client::close_within`](crate::Client::close_within).
    pub fn close_within(&self, limit: Duration) -> bool {
        block_on(self.0.close_within(limit))
    }
}

#[cfg(feature = "timestamp")]
impl TimestampLock {
    /// The lock of this name; see [`TimestampLock::new`](crate::TimestampLock::new).
    pub fn new(client: &Client, name: impl AsRef<str>) -> Self {
        client.timestamp_lock(name)
    }
}

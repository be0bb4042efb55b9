//! The same nouns without `async`. Must never hold logic of its own: each call waits for the one it is named after.
//!
//! Do not call it from async code: it blocks the thread.
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

#[cfg(feature = "cache")]
use std::error::Error as StdError;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::{Fence, Snapshot};
use pollster::block_on;

use crate::error::{Error, Lost};
use crate::lease::Tenure;

/// A blocking [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct Client(crate::Client);

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

impl Client {
    /// See [`Client::connect`](crate::Client::connect); for settings, connect a builder and convert.
    pub fn connect(url: &str) -> Result<Self, Error> {
        block_on(crate::Client::connect(url)).map(Self)
    }

    /// See [`Client::embedded`](crate::Client::embedded).
    pub fn embedded() -> Result<Self, Error> {
        crate::Client::embedded().map(Self)
    }

    /// See [`Client::mutex`](crate::Client::mutex). For settings, use [`Mutex::map`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex(self.0.mutex(name))
    }

    /// See [`Client::timestamp_lock`](crate::Client::timestamp_lock). For settings, use [`TimestampLock::map`].
    pub fn timestamp_lock(&self, name: impl AsRef<str>) -> TimestampLock {
        TimestampLock(self.0.timestamp_lock(name))
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

    /// See [`Client::close`](crate::Client::close).
    pub fn close(&self) {
        block_on(self.0.close());
    }
}

/// A blocking [`Cache`](crate::cache::Cache).
#[cfg(feature = "cache")]
#[derive(Debug, Clone)]
pub struct Cache<C = crate::cache::Json>(crate::cache::Cache<C>);

#[cfg(feature = "cache")]
impl Client {
    /// See [`Client::cache`](crate::Client::cache). For settings, use [`Cache::map`].
    pub fn cache(&self) -> Cache {
        Cache(self.0.cache())
    }
}

#[cfg(feature = "cache")]
impl<C: crate::cache::Way> Cache<C> {
    /// Changes the settings: `cache.map(|cache| cache.policy(policy).raw())`.
    pub fn map<D>(
        self,
        change: impl FnOnce(crate::cache::Cache<C>) -> crate::cache::Cache<D>,
    ) -> Cache<D> {
        Cache(change(self.0))
    }

    /// See [`Cache::get_or_refresh`](crate::cache::Cache::get_or_refresh). The loader runs on a thread of its own. One that asks for its
    /// own entry waits in vain, and for as long as the policy says.
    pub fn get_or_refresh<V, E>(
        &self,
        key: impl AsRef<str>,
        loader: impl FnOnce() -> Result<V, E> + Send + 'static,
    ) -> Result<crate::cache::Got<V>, crate::cache::Error>
    where
        C: crate::cache::Codec<V>,
        V: Send + Sync + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let load = || on_thread(|| loader().map_err(Into::into));
        block_on(self.0.get_or_refresh(key, load).into_future())
    }

    /// See [`Cache::get`](crate::cache::Cache::get).
    pub fn get<V>(
        &self,
        key: impl AsRef<str>,
    ) -> Result<Option<crate::cache::Got<V>>, crate::cache::Error>
    where
        C: crate::cache::Codec<V>,
    {
        block_on(self.0.get(key))
    }

    /// See [`Cache::invalidate`](crate::cache::Cache::invalidate).
    pub fn invalidate(&self, key: impl AsRef<str>) -> Result<(), crate::cache::Error> {
        block_on(self.0.invalidate(key))
    }

    /// See [`Cache::remove`](crate::cache::Cache::remove).
    pub fn remove(&self, key: impl AsRef<str>) -> Result<(), crate::cache::Error> {
        block_on(self.0.remove(key))
    }
}

/// Does `work` on a thread of its own.
#[cfg(feature = "cache")]
async fn on_thread<V: Send + 'static>(
    work: impl FnOnce() -> Result<V, Box<dyn StdError + Send + Sync>> + Send + 'static,
) -> Result<V, Box<dyn StdError + Send + Sync>> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    // Fails to reply only if nobody waits any more.
    crate::runtime::thread("lh-load".into(), || drop(reply.send(work())))?;
    answer.await.map_err(|_| "the loader panicked")?
}

/// A blocking [`Mutex`](crate::Mutex).
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is acquired"]
pub struct Mutex(crate::Mutex);

impl Mutex {
    /// Changes the settings: `mutex.map(|mutex| mutex.ttl(ttl).note("nightly"))`.
    pub fn map(self, change: impl FnOnce(crate::Mutex) -> crate::Mutex) -> Self {
        Self(change(self.0))
    }

    /// See [`Mutex::acquire`](crate::Mutex::acquire).
    pub fn acquire(&self) -> Result<Lease, Error> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// See [`Mutex::acquire_within`](crate::Mutex::acquire_within).
    pub fn acquire_within(&self, limit: Duration) -> Result<Lease, Error> {
        block_on(self.0.acquire_within(limit)).map(Lease)
    }

    /// See [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Lease))
    }
}

/// A blocking [`Lease`](crate::Lease); what does not wait is reached through it.
#[derive(Debug)]
#[must_use = "dropping a lease releases the lock"]
pub struct Lease(crate::Lease);

impl Lease {
    /// Waits until the lease is lost; see [`Lease::lost`](crate::Lease::lost).
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`Lease::extend`](crate::Lease::extend).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`Lease::release`](crate::Lease::release).
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`Lease::release_after`](crate::Lease::release_after).
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }

    /// See [`Lease::detach`](crate::Lease::detach).
    pub fn detach(self, ttl: Duration) -> Result<(Detached, Tenure), Error> {
        let (detached, tenure) = block_on(self.0.detach(ttl))?;
        Ok((Detached(detached), tenure))
    }
}

/// A blocking [`Detached`](crate::Detached); what does not wait is reached through it.
#[derive(Debug, Clone)]
pub struct Detached(crate::Detached);

impl Detached {
    /// See [`Detached::renew`](crate::Detached::renew).
    pub fn renew(&self, ttl: Duration) -> Result<Tenure, Error> {
        block_on(self.0.renew(ttl))
    }

    /// See [`Detached::check`](crate::Detached::check).
    pub fn check(&self) -> Result<Tenure, Error> {
        block_on(self.0.check())
    }

    /// See [`Detached::release`](crate::Detached::release).
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }
}

impl Deref for Detached {
    type Target = crate::Detached;

    fn deref(&self) -> &crate::Detached {
        &self.0
    }
}

impl Deref for Lease {
    type Target = crate::Lease;

    fn deref(&self) -> &crate::Lease {
        &self.0
    }
}

/// A blocking [`TimestampLock`](crate::TimestampLock).
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct TimestampLock(crate::TimestampLock);

impl TimestampLock {
    /// Changes the settings: `lock.map(|lock| lock.ttl(ttl).unit(Unit::Millis))`.
    pub fn map(self, change: impl FnOnce(crate::TimestampLock) -> crate::TimestampLock) -> Self {
        Self(change(self.0))
    }

    /// See [`TimestampLock::acquire`](crate::TimestampLock::acquire).
    pub fn acquire(&self) -> Result<TimestampHold, Error> {
        block_on(self.0.acquire()).map(TimestampHold)
    }

    /// See [`TimestampLock::acquire_within`](crate::TimestampLock::acquire_within).
    pub fn acquire_within(&self, limit: Duration) -> Result<TimestampHold, Error> {
        block_on(self.0.acquire_within(limit)).map(TimestampHold)
    }

    /// See [`TimestampLock::try_acquire`](crate::TimestampLock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<TimestampHold>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(TimestampHold))
    }
}

/// A blocking [`TimestampHold`](crate::TimestampHold); what does not wait is reached through it.
#[derive(Debug)]
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold(crate::TimestampHold);

impl TimestampHold {
    /// Waits until it is lost; see [`TimestampHold::lost`](crate::TimestampHold::lost).
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`TimestampHold::extend`](crate::TimestampHold::extend).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`TimestampHold::release`](crate::TimestampHold::release).
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`TimestampHold::release_after`](crate::TimestampHold::release_after).
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }
}

impl Deref for TimestampHold {
    type Target = crate::TimestampHold;

    fn deref(&self) -> &crate::TimestampHold {
        &self.0
    }
}

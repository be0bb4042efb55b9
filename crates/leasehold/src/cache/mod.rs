//! **A cache guard**: a hot entry expires, a thousand requests arrive, and exactly one of them loads the entry. The others take the stale
//! value or wait. This works across processes and hosts.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::Client;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::embedded()?;                    // or Client::connect("redis://127.0.0.1/").await?
//! let cache = client.cache();
//!
//! let page = cache
//!     .get_or_refresh("home", || async { Ok::<_, std::io::Error>(String::from("<h1>hello</h1>")) })
//!     .fresh_for(Duration::from_secs(60))
//!     .stale_for(Duration::from_secs(600))
//!     .await?;
//! println!("{} bytes, {:?}, {:?} old", page.len(), page.origin(), page.age());
//! cache.invalidate("home").await?;                     // readers get the stale value, and one refreshes it
//! # client.close().await; Ok(()) }
//! ```
//!
//! | the entry is | a caller gets |
//! |---|---|
//! | fresh | the value, by one `GET`; shortly before it expires, one caller in the fleet refreshes it in the background |
//! | stale (past its soft expiry, or invalidated) | the stale value at once; one caller in the fleet refreshes it in the background |
//! | missing | the value, loaded by one caller in the fleet; the others wait and are woken when it is stored |
//! | failing to load | the stale value if there is one, else the loader's error, shared; no caller in the fleet retries during the back-off |
//!
//! # What is promised, and what is not
//!
//! - **After [`Cache::invalidate`] has returned, no process returns a value that was loaded before as fresh.** The store decides this when
//!   a value is stored. It is a safety property on one primary: an asynchronous failover of Redis may lose an invalidation, like any write.
//! - **One load at a time is only efficiency.** A process that is paused for longer than its lease may load beside its successor. Its
//!   value is stored if no newer one exists, and never replaces a newer one.
//! - A loader runs in a new task on the caller's runtime. A caller that times out, is dropped or panics does not end the load.
//! - The entries share the key space with all other keys of the store. A key that holds anything but a cache entry is left alone. Other
//!   languages can read entries: see `docs/reference/cache-protocol.md`.

mod cached;
mod call;
mod codec;
mod error;
mod many;
mod run;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::time::Duration;

use leasehold_core::LockName;
pub use leasehold_core::cache::Format;
use leasehold_core::cache::Value;

pub use self::cached::{Cached, Origin};
pub use self::call::{GetOrRefresh, Lifetime};
pub use self::codec::{AnyFormat, Codec, Encoding, Json, MessagePack, Raw};
pub use self::error::{Error, LoadFailed};
pub use self::many::{BatchResult, GetManyOrRefresh};
use self::run::run;
use crate::client::Client;
pub use crate::guard::{MOST_BYTES, Policy};

/// A cache of values in the store of a client. Cheap to clone.
#[derive(Debug)]
pub struct Cache<C = Json> {
    client: Client,
    policy: Policy,
    codec: PhantomData<C>,
}

impl Client {
    /// The cache in this client's store, with values as JSON and the default [`Policy`]. Does no I/O.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// let cache = client.cache();
    /// let load = || async { Ok::<_, std::io::Error>(6 * 7) };
    /// assert_eq!(*cache.get_or_refresh("answer", load).await?, 42);
    /// # client.close().await; Ok(()) }
    /// ```
    pub fn cache(&self) -> Cache {
        Cache {
            client: self.clone(),
            policy: Policy::default(),
            codec: PhantomData,
        }
    }
}

impl<C: Encoding> Cache<C> {
    /// This cache with another policy.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    /// use leasehold::cache::Policy;
    ///
    /// let cache = client.cache().policy(Policy::default().fresh_for(Duration::from_secs(5)));
    /// # client.close().await; Ok(()) }
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// This cache with values as `MessagePack`.
    pub fn message_pack(&self) -> Cache<MessagePack> {
        self.with()
    }

    /// This cache with values that are bytes (`Vec<u8>`), stored unchanged.
    pub fn raw(&self) -> Cache<Raw> {
        self.with()
    }

    /// This cache with the bytes of stored values of any format. Loaded values are stored as bytes.
    pub fn any_format(&self) -> Cache<AnyFormat> {
        self.with()
    }

    /// This cache with your own encoding: see [`Codec`] for an example.
    pub fn codec<D: Encoding>(&self) -> Cache<D> {
        self.with()
    }

    /// The value of `key`, loaded by `loader` if no other caller loads it. Nothing happens until the result is awaited.
    ///
    /// A load that has begun runs to its end, even if no caller waits any more. For a missing or stale entry only one caller's loader runs.
    /// Any caller's may, so all loaders of a key must be equivalent.
    ///
    /// # What a loader may use
    ///
    /// A loader owns all that it uses (`'static`), since it runs in a new task and may outlive its caller. Clone the data, or keep it in an
    /// [`Arc`](std::sync::Arc), and `move` that into the loader:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::Client;
    /// use leasehold::cache::{self, Cache};
    ///
    /// struct Db;
    ///
    /// impl Db {
    ///     async fn name(&self, id: u32) -> Result<String, std::io::Error> {
    ///         Ok(format!("user {id}"))
    ///     }
    /// }
    ///
    /// struct Users {
    ///     db: Arc<Db>,
    ///     cache: Cache,
    /// }
    ///
    /// impl Users {
    ///     async fn name(&self, id: u32) -> Result<String, cache::Error> {
    ///         let db = self.db.clone();
    ///         let load = move || async move { db.name(id).await };
    ///         let name = self.cache.get_or_refresh(format!("user:{id}"), load).await?;
    ///         Ok(String::clone(&name))
    ///     }
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::embedded()?;
    /// let users = Users { db: Arc::new(Db), cache: client.cache() };
    /// assert_eq!(users.name(7).await?, "user 7");
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// If `?` in a loader meets several error types, name their common type. With `anyhow`, end the loader with `anyhow::Ok(value)`. Without
    /// it, for instance:
    ///
    /// ```
    /// use std::error::Error;
    /// use leasehold::Client;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn Error>> {
    /// # let client = Client::embedded()?;
    /// let load = || async {
    ///     let text = String::from_utf8(b"42".to_vec())?;
    ///     let answer: u32 = text.parse()?;
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(answer)
    /// };
    /// assert_eq!(*client.cache().get_or_refresh("answer", load).await?, 42);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropping the future does not end a load that has begun: it runs to its end, and its value is stored.
    pub fn get_or_refresh<V, E, F, L>(&self, key: impl AsRef<str>, loader: L) -> GetOrRefresh<V, C>
    where
        C: Codec<V>,
        V: Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = Result<V, E>> + Send + 'static,
        L: FnOnce() -> F + Send + 'static,
    {
        GetOrRefresh::new(&self.client, &self.policy, key.as_ref(), loader)
    }

    /// The values of several keys, by one read. One call of `loader` loads all missing and stale keys that no other caller loads. A key
    /// that is not in the loader's result has no value; to cache that too, use `Option` values and return `None`.
    ///
    /// The loader may be called again for a key whose load another process began and did not end.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::collections::HashMap;
    ///
    /// let load = |keys: Vec<String>| async move {
    ///     let lengths = keys.into_iter().map(|key| (key.clone(), key.len()));
    ///     Ok::<_, std::io::Error>(lengths.collect::<HashMap<_, _>>())
    /// };
    /// let batch = client.cache().get_many_or_refresh(["a", "bc"], load).await?;
    /// assert_eq!(*batch.all()?["bc"], 2);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`Error`]. The errors of single keys are in [`BatchResult::failed`].
    ///
    /// # Cancel safety
    /// Dropping the future does not end a load that has begun: it runs to its end, and its values are stored.
    pub fn get_many_or_refresh<V, E, F, L>(
        &self,
        keys: impl IntoIterator<Item: AsRef<str>>,
        loader: L,
    ) -> GetManyOrRefresh<V, C>
    where
        C: Codec<V>,
        V: Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = Result<HashMap<String, V>, E>> + Send + 'static,
        L: Fn(Vec<String>) -> F + Send + Sync + 'static,
    {
        let keys = keys.into_iter().map(|key| key.as_ref().to_owned());
        GetManyOrRefresh::new(&self.client, &self.policy, keys.collect(), loader)
    }

    /// The stored value of `key`, fresh or stale, if there is one. Loads nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// assert!(client.cache().get::<String>("home").await?.is_none());
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Invalid`] for a key that is not allowed, [`Error::Value`] for a value that cannot be read as a `V`.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn get<V>(&self, key: impl AsRef<str>) -> Result<Option<Cached<V>>, Error>
    where
        C: Codec<V>,
    {
        let name = self.client.entry(key.as_ref())?;
        let guard = self.client.guard.inner();
        let entry = name.clone();
        let look = async move { guard.find(&entry).await };
        let found = run(&self.client, &name, look).await?;
        let Some((value, now_ms)) = found else {
            return Ok(None);
        };
        let origin = value.header.standing(now_ms).into();
        let age = value.header.age(now_ms);
        read::<V, C>(&name, &value, age, origin).map(Some)
    }

    /// Makes the value of `key` stale, and also the values of loads that are under way. Readers take the stale value or wait, by their
    /// policy, and one of them refreshes it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// # let cache = client.cache();
    /// // After the source has changed:
    /// cache.invalidate("user:7").await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`]: the invalidation may not have happened, and the stored value may still be returned as fresh.
    ///
    /// # Cancel safety
    /// After the future is dropped, the invalidation may or may not have happened. Call it again.
    pub async fn invalidate(&self, key: impl AsRef<str>) -> Result<(), Error> {
        self.end(key.as_ref(), false).await
    }

    /// Invalidates `key` as [`Cache::invalidate`] does, and deletes the value: readers wait for the next load.
    ///
    /// # Errors
    /// As [`Cache::invalidate`].
    ///
    /// # Cancel safety
    /// As [`Cache::invalidate`].
    pub async fn remove(&self, key: impl AsRef<str>) -> Result<(), Error> {
        self.end(key.as_ref(), true).await
    }

    async fn end(&self, key: &str, remove: bool) -> Result<(), Error> {
        let name = self.client.entry(key)?;
        let (guard, entry) = (self.client.guard.inner(), name.clone());
        let end = async move { guard.invalidate(&entry, remove).await };
        run(&self.client, &name, end).await
    }
}

impl<C> Clone for Cache<C> {
    fn clone(&self) -> Self {
        self.with()
    }
}

impl<C> Cache<C> {
    fn with<D>(&self) -> Cache<D> {
        Cache {
            client: self.client.clone(),
            policy: self.policy.clone(),
            codec: PhantomData,
        }
    }
}

/// Reads a stored value.
fn read<V, C: Codec<V>>(
    key: &LockName,
    value: &Value,
    age: Duration,
    origin: Origin,
) -> Result<Cached<V>, Error> {
    let decoded = codec::read::<V, C>(value).map_err(|why| Error::Value {
        key: key.as_str().to_owned(),
        why,
    })?;
    Ok(Cached {
        value: decoded.into(),
        age,
        origin,
    })
}

//! **The cache guard**: a hot entry expires, a thousand requests arrive, and exactly one loads it; the others take the stale value or
//! wait. Across processes and hosts, not only in this one.
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
//! cache.invalidate("home").await?;                     // readers get the stale value; one refreshes
//! # client.close().await; Ok(()) }
//! ```
//!
//! | the entry is | a caller gets |
//! |---|---|
//! | fresh | the value, by one `GET`; shortly before it expires, one caller in the fleet refreshes it in the background |
//! | stale (past its soft expiry, or invalidated) | the stale value at once; one in the fleet refreshes it in the background |
//! | missing | the value, loaded by one in the fleet; the others wait, and are woken when it is there |
//! | failing to load | the stale value if there is one, else the loader's error, shared; for a while nobody in the fleet tries again |
//!
//! # What is promised, and what is not
//!
//! - **After [`Cache::invalidate`] has returned, no value that was loaded before is ever given out as fresh**, by any process,
//!   whatever was under way: the store decides at the moment of storing. That is safety, on one primary; an asynchronous failover of
//!   Redis may lose an invalidation as it may lose any write.
//! - **One load at a time is efficiency**: a process that is paused for longer than its lease can load beside its successor. Its
//!   value is kept if there is none that is newer, and never replaces a newer one.
//! - A loader runs in a task of its own on the caller's runtime: a caller that times out, is dropped or panics ends no load.
//! - The entries share the key space with everything else in the store. What is no entry is never overwritten; see
//!   `docs/reference/cache-protocol.md` for the form of one, which other languages can read.

mod cached;
mod call;
mod codec;
#[cfg(test)]
mod ending;
mod error;
#[cfg(test)]
mod lost;
mod many;
mod run;
#[cfg(test)]
mod schedules;

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
    pub fn cache(&self) -> Cache {
        Cache {
            client: self.clone(),
            policy: Policy::default(),
            codec: PhantomData,
        }
    }
}

impl<C: Encoding> Cache<C> {
    /// The same with other settings.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The same with values as `MessagePack`.
    pub fn message_pack(&self) -> Cache<MessagePack> {
        self.with()
    }

    /// The same with values that are bytes (`Vec<u8>`), stored as they are.
    pub fn raw(&self) -> Cache<Raw> {
        self.with()
    }

    /// The same with the bytes of whatever is stored, in any format; what is loaded is stored as bytes.
    pub fn any_format(&self) -> Cache<AnyFormat> {
        self.with()
    }

    /// The same with values written in a way of your own: see [`Codec`] for an example.
    pub fn codec<D: Encoding>(&self) -> Cache<D> {
        self.with()
    }

    /// The value of `key`, or what `loader` brings if nobody else does. Nothing happens until it is awaited.
    ///
    /// Once begun, a load runs to its end even if nobody waits for it any more. Only one of those who ask for a missing or stale entry
    /// has its loader called; in an hour of traffic, that may be anyone.
    ///
    /// # What a loader may use
    ///
    /// A loader owns what it uses (`'static`), since it runs in a task of its own and may outlive its caller. Clone what it needs, or
    /// keep it in an [`Arc`](std::sync::Arc), and `move` that into the loader:
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
    /// A loader in which `?` meets several errors says which type they become: with `anyhow`, its last line is `anyhow::Ok(value)`.
    /// Without, for instance:
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

    /// The values of several keys, by one read; what is missing or stale and falls to this caller is loaded by one call of `loader`, with
    /// all of that. What it does not bring has no value; say `None` of an `Option` to have that cached as well.
    ///
    /// The loader may be called again for a key that another process began to load and did not end.
    ///
    /// # Errors
    /// See [`Error`]; those of single keys are in [`BatchResult::failed`].
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

    /// The value of `key` if there is one, fresh or stale; nobody loads it.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Invalid`] for a key that cannot be one, [`Error::Value`] for what cannot be read as a `V`.
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

    /// What is stored under `key` is no longer true. From here on it is stale, and so is what loads that are under way will bring: readers
    /// take it as such or wait, by their policy, and one refreshes it.
    ///
    /// # Errors
    /// [`Error::Store`]: it may not have happened, and what is stored may still be given out as fresh.
    pub async fn invalidate(&self, key: impl AsRef<str>) -> Result<(), Error> {
        self.end(key.as_ref(), false).await
    }

    /// The same, and the value is deleted: readers wait.
    ///
    /// # Errors
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

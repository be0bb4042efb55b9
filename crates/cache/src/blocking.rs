//! The cache guard without `async`. Do not use it in async code.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::blocking::Client;
//! use leasehold_cache::blocking::Cache;
//!
//! let cache = Cache::new(&Client::embedded()?);
//! let page = cache
//!     .get_or_refresh("home", || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>")))
//!     .fresh_for(Duration::from_secs(60))
//!     .wait()?;
//! println!("{} bytes", page.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use leasehold::block_on;
use leasehold::blocking::Client;
use leasehold::entries::thread;
use tokio::sync::oneshot;

use crate::{
    AnyFormat, Cached, Codec, Encoding, Error, GetManyOrRefresh, GetOrRefresh, Json, MessagePack,
    Policy, Raw,
};

/// A blocking [`Cache`](crate::Cache).
#[derive(Debug, Clone)]
pub struct Cache<C = Json>(crate::Cache<C>);

impl Cache {
    /// See [`Cache::new`](crate::Cache::new).
    pub fn new(client: &Client) -> Self {
        Self(crate::Cache::new(&client.clone().into()))
    }

    /// See [`Cache::in_process`](crate::Cache::in_process).
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::blocking::Client;
    /// use leasehold_cache::blocking::Cache;
    ///
    /// let cache = Cache::in_process(&Client::embedded()?, 64_000_000, Duration::from_secs(30));
    /// assert!(cache.get::<String>("home")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_process(client: &Client, max_bytes: u64, max_age: Duration) -> Self {
        let client = client.clone().into();
        Self(crate::Cache::in_process(&client, max_bytes, max_age))
    }
}

impl<C> From<crate::Cache<C>> for Cache<C> {
    fn from(cache: crate::Cache<C>) -> Self {
        Self(cache)
    }
}

impl<C: Encoding> Cache<C> {
    /// See [`Cache::policy`](crate::Cache::policy).
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self(self.0.policy(policy))
    }

    /// See [`Cache::message_pack`](crate::Cache::message_pack).
    pub fn message_pack(&self) -> Cache<MessagePack> {
        Cache(self.0.message_pack())
    }

    /// See [`Cache::raw`](crate::Cache::raw).
    pub fn raw(&self) -> Cache<Raw> {
        Cache(self.0.raw())
    }

    /// See [`Cache::any_format`](crate::Cache::any_format).
    pub fn any_format(&self) -> Cache<AnyFormat> {
        Cache(self.0.any_format())
    }

    /// See [`Cache::codec`](crate::Cache::codec).
    pub fn codec<D: Encoding>(&self) -> Cache<D> {
        Cache(self.0.codec())
    }

    /// See [`Cache::get_or_refresh`](crate::Cache::get_or_refresh); [`GetOrRefresh::wait`] runs the call. The loader
    /// runs on a new thread. A loader that asks for its own entry waits until the limit of the policy, and gets no value.
    pub fn get_or_refresh<V, E>(
        &self,
        key: impl AsRef<str>,
        loader: impl FnOnce() -> Result<V, E> + Send + 'static,
    ) -> GetOrRefresh<V, C>
    where
        C: Codec<V>,
        V: Send + Sync + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let load = || on_thread(|| loader().map_err(Into::into));
        self.0.get_or_refresh(key, load)
    }

    /// See [`Cache::get_many_or_refresh`](crate::Cache::get_many_or_refresh); [`GetManyOrRefresh::wait`] runs the
    /// call. The loader runs on a new thread.
    ///
    /// ```
    /// # use leasehold_cache::blocking::Cache;
    /// # let cache = Cache::new(&leasehold::blocking::Client::embedded()?);
    /// let load = |keys: Vec<String>| {
    ///     Ok::<_, std::io::Error>(keys.into_iter().map(|key| (key, 7)).collect())
    /// };
    /// let found = cache.get_many_or_refresh(["a", "b"], load).wait()?;
    /// assert_eq!(*found.all()?["a"], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many_or_refresh<V, E>(
        &self,
        keys: impl IntoIterator<Item: AsRef<str>>,
        loader: impl Fn(Vec<String>) -> Result<HashMap<String, V>, E> + Send + Sync + 'static,
    ) -> GetManyOrRefresh<V, C>
    where
        C: Codec<V>,
        V: Send + Sync + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let loader = Arc::new(loader);
        let load = move |keys| {
            let loader = loader.clone();
            on_thread(move || loader(keys).map_err(Into::into))
        };
        self.0.get_many_or_refresh(keys, load)
    }

    /// See [`Cache::get`](crate::Cache::get).
    ///
    /// # Errors
    /// See [`Cache::get`](crate::Cache::get).
    pub fn get<V>(&self, key: impl AsRef<str>) -> Result<Option<Cached<V>>, Error>
    where
        C: Codec<V>,
    {
        block_on(self.0.get(key))
    }

    /// See [`Cache::invalidate`](crate::Cache::invalidate).
    ///
    /// # Errors
    /// See [`Cache::invalidate`](crate::Cache::invalidate).
    pub fn invalidate(&self, key: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.invalidate(key))
    }

    /// See [`Cache::remove`](crate::Cache::remove).
    ///
    /// # Errors
    /// See [`Cache::remove`](crate::Cache::remove).
    pub fn remove(&self, key: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.remove(key))
    }
}

/// Runs `work` on a new thread.
async fn on_thread<V: Send + 'static>(
    work: impl FnOnce() -> Result<V, Box<dyn StdError + Send + Sync>> + Send + 'static,
) -> Result<V, Box<dyn StdError + Send + Sync>> {
    let (reply, answer) = oneshot::channel();
    // Fails only if the caller has gone.
    thread("lh-load".into(), || drop(reply.send(work())))?;
    answer.await.map_err(|_| "the loader panicked")?
}

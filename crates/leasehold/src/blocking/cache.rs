//! The cache guard without `async`.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;

use pollster::block_on;

use super::refresh::{GetManyOrRefresh, GetOrRefresh};
use crate::cache::{AnyFormat, Cached, Codec, Encoding, Error, Json, MessagePack, Policy, Raw};

/// A blocking [`Cache`](crate::cache::Cache).
#[derive(Debug, Clone)]
pub struct Cache<C = Json>(pub(super) crate::cache::Cache<C>);

impl<C: Encoding> Cache<C> {
    /// Applies settings of the async cache: `cache.map(|cache| cache.policy(policy).raw())`.
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// # use std::time::Duration;
    /// use leasehold::cache::Policy;
    ///
    /// let policy = Policy::default().fresh_for(Duration::from_secs(60));
    /// let cache = cache.map(|cache| cache.policy(policy));
    /// assert_eq!(*cache.get_or_refresh("home", load).wait()?, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map<D>(
        self,
        change: impl FnOnce(crate::cache::Cache<C>) -> crate::cache::Cache<D>,
    ) -> Cache<D> {
        Cache(change(self.0))
    }

    /// See [`Cache::policy`](crate::cache::Cache::policy).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// # use std::time::Duration;
    /// use leasehold::cache::Policy;
    ///
    /// let cache = cache.policy(Policy::default().fresh_for(Duration::from_secs(60)));
    /// assert_eq!(*cache.get_or_refresh("home", load).wait()?, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.map(|cache| cache.policy(policy))
    }

    /// See [`Cache::message_pack`](crate::cache::Cache::message_pack).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let page = cache.message_pack().get_or_refresh("home", load).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message_pack(&self) -> Cache<MessagePack> {
        Cache(self.0.message_pack())
    }

    /// See [`Cache::raw`](crate::cache::Cache::raw).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// let load = || Ok::<_, std::io::Error>(b"bytes".to_vec());
    /// let value = cache.raw().get_or_refresh("image", load).wait()?;
    /// assert_eq!(*value, b"bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raw(&self) -> Cache<Raw> {
        Cache(self.0.raw())
    }

    /// See [`Cache::any_format`](crate::cache::Cache::any_format).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// let load = || Ok::<_, std::io::Error>(b"bytes".to_vec());
    /// cache.raw().get_or_refresh("image", load).wait()?;
    /// println!("{:?}", cache.any_format());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn any_format(&self) -> Cache<AnyFormat> {
        Cache(self.0.any_format())
    }

    /// See [`Cache::codec`](crate::cache::Cache::codec).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let packed = cache.codec::<leasehold::cache::MessagePack>();
    /// assert_eq!(*packed.get_or_refresh("home", load).wait()?, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn codec<D: Encoding>(&self) -> Cache<D> {
        Cache(self.0.codec())
    }

    /// See [`Cache::get_or_refresh`](crate::cache::Cache::get_or_refresh); [`GetOrRefresh::wait`] runs the call. The loader
    /// runs on a new thread. A loader that asks for its own entry waits until the limit of the policy, and gets no value.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = leasehold::blocking::Client::embedded()?.cache();
    /// let page = cache
    ///     .get_or_refresh("home", || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>")))
    ///     .fresh_for(Duration::from_secs(60))
    ///     .wait()?;
    /// println!("{} bytes", page.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        GetOrRefresh(self.0.get_or_refresh(key, load))
    }

    /// See [`Cache::get_many_or_refresh`](crate::cache::Cache::get_many_or_refresh); [`GetManyOrRefresh::wait`] runs the
    /// call. The loader runs on a new thread.
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// let load = |keys: Vec<String>| {
    ///     Ok::<_, std::io::Error>(keys.into_iter().map(|key| (key, 7)).collect())
    /// };
    /// let found = cache.get_many_or_refresh(["a", "b"], load).wait()?;
    /// println!("{found:?}");
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
        GetManyOrRefresh(self.0.get_many_or_refresh(keys, load))
    }

    /// See [`Cache::get`](crate::cache::Cache::get).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// assert!(cache.get::<String>("home")?.is_none());
    /// cache.get_or_refresh("home", load).wait()?;
    /// assert!(cache.get::<String>("home")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get<V>(&self, key: impl AsRef<str>) -> Result<Option<Cached<V>>, Error>
    where
        C: Codec<V>,
    {
        block_on(self.0.get(key))
    }

    /// See [`Cache::invalidate`](crate::cache::Cache::invalidate).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// cache.get_or_refresh("home", load).wait()?;
    /// cache.invalidate("home")?; // stale from now on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn invalidate(&self, key: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.invalidate(key))
    }

    /// See [`Cache::remove`](crate::cache::Cache::remove).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// cache.get_or_refresh("home", load).wait()?;
    /// cache.remove("home")?;
    /// assert!(cache.get::<String>("home")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, key: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.remove(key))
    }
}

/// Runs `work` on a new thread.
async fn on_thread<V: Send + 'static>(
    work: impl FnOnce() -> Result<V, Box<dyn StdError + Send + Sync>> + Send + 'static,
) -> Result<V, Box<dyn StdError + Send + Sync>> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    // Fails only if the caller has gone.
    crate::runtime::thread("lh-load".into(), || drop(reply.send(work())))?;
    answer.await.map_err(|_| "the loader panicked")?
}

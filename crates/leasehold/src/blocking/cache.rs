//! The cache guard without `async`.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;

use crate::cache::{
    AnyFormat, BatchResult, Cached, Codec, Encoding, Error, Json, Lifetime, MessagePack, Policy,
    Raw,
};

/// A blocking [`Cache`](crate::cache::Cache).
#[derive(Debug, Clone)]
pub struct Cache<C = Json>(pub(super) crate::cache::Cache<C>);

impl<C: Encoding> Cache<C> {
    /// Applies settings of the async cache: `cache.map(|cache| cache.policy(policy).raw())`.
    pub fn map<D>(
        self,
        change: impl FnOnce(crate::cache::Cache<C>) -> crate::cache::Cache<D>,
    ) -> Cache<D> {
        Cache(change(self.0))
    }

    /// See [`Cache::policy`](crate::cache::Cache::policy).
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.map(|cache| cache.policy(policy))
    }

    /// See [`Cache::message_pack`](crate::cache::Cache::message_pack).
    pub fn message_pack(&self) -> Cache<MessagePack> {
        Cache(self.0.message_pack())
    }

    /// See [`Cache::raw`](crate::cache::Cache::raw).
    pub fn raw(&self) -> Cache<Raw> {
        Cache(self.0.raw())
    }

    /// See [`Cache::any_format`](crate::cache::Cache::any_format).
    pub fn any_format(&self) -> Cache<AnyFormat> {
        Cache(self.0.any_format())
    }

    /// See [`Cache::codec`](crate::cache::Cache::codec).
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
    pub fn get<V>(&self, key: impl AsRef<str>) -> Result<Option<Cached<V>>, Error>
    where
        C: Codec<V>,
    {
        block_on(self.0.get(key))
    }

    /// See [`Cache::invalidate`](crate::cache::Cache::invalidate).
    pub fn invalidate(&self, key: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.invalidate(key))
    }

    /// See [`Cache::remove`](crate::cache::Cache::remove).
    pub fn remove(&self, key: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.remove(key))
    }
}

/// A blocking [`GetOrRefresh`](crate::cache::GetOrRefresh): settings of one call, which [`GetOrRefresh::wait`] then does.
#[must_use = "nothing happens until `wait`"]
pub struct GetOrRefresh<V, C>(crate::cache::GetOrRefresh<V, C>);

impl<V: Send + Sync + 'static, C: Codec<V>> GetOrRefresh<V, C> {
    /// See [`Policy::fresh_for`].
    pub fn fresh_for(self, duration: Duration) -> Self {
        Self(self.0.fresh_for(duration))
    }

    /// See [`Policy::stale_for`].
    pub fn stale_for(self, duration: Duration) -> Self {
        Self(self.0.stale_for(duration))
    }

    /// See [`Policy::wait_at_most`].
    pub fn wait_at_most(self, limit: Duration) -> Self {
        Self(self.0.wait_at_most(limit))
    }

    /// See [`GetOrRefresh::must_be_fresh`](crate::cache::GetOrRefresh::must_be_fresh).
    pub fn must_be_fresh(self) -> Self {
        Self(self.0.must_be_fresh())
    }

    /// See [`GetOrRefresh::never_wait`](crate::cache::GetOrRefresh::never_wait).
    pub fn never_wait(self) -> Self {
        Self(self.0.never_wait())
    }

    /// All settings at once.
    pub fn policy(self, policy: Policy) -> Self {
        Self(self.0.policy(policy))
    }

    /// See [`GetOrRefresh::lifetime`](crate::cache::GetOrRefresh::lifetime).
    pub fn lifetime(self, lifetime: impl FnOnce(&V) -> Lifetime + Send + 'static) -> Self {
        Self(self.0.lifetime(lifetime))
    }

    /// The stored value, or the loader's if no other caller loads.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn wait(self) -> Result<Cached<V>, Error> {
        block_on(self.0.into_future())
    }
}

impl<V, C> fmt::Debug for GetOrRefresh<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A blocking [`GetManyOrRefresh`](crate::cache::GetManyOrRefresh): settings of one call, which [`GetManyOrRefresh::wait`] then does.
#[must_use = "nothing happens until `wait`"]
pub struct GetManyOrRefresh<V, C>(crate::cache::GetManyOrRefresh<V, C>);

impl<V: Send + Sync + 'static, C: Codec<V>> GetManyOrRefresh<V, C> {
    /// All settings at once.
    pub fn policy(self, policy: Policy) -> Self {
        Self(self.0.policy(policy))
    }

    /// See [`GetManyOrRefresh::lifetime`](crate::cache::GetManyOrRefresh::lifetime).
    pub fn lifetime(self, lifetime: impl Fn(&V) -> Lifetime + Send + Sync + 'static) -> Self {
        Self(self.0.lifetime(lifetime))
    }

    /// The stored values and the loader's.
    ///
    /// # Errors
    /// See [`Error`]; those of single keys are in [`BatchResult::failed`].
    pub fn wait(self) -> Result<BatchResult<V>, Error> {
        block_on(self.0.into_future())
    }
}

impl<V, C> fmt::Debug for GetManyOrRefresh<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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

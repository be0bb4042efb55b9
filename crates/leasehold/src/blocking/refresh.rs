//! The calls of the cache guard without `async`: settings, then `wait`.

use std::fmt;
use std::time::Duration;

use pollster::block_on;

use crate::cache::{BatchResult, Cached, Codec, Error, Lifetime, Policy};

/// A blocking [`GetOrRefresh`](crate::cache::GetOrRefresh): settings of one call, which [`GetOrRefresh::wait`] then does.
#[must_use = "nothing happens until `wait`"]
pub struct GetOrRefresh<V, C>(pub(super) crate::cache::GetOrRefresh<V, C>);

impl<V: Send + Sync + 'static, C: Codec<V>> GetOrRefresh<V, C> {
    /// See [`Policy::fresh_for`].
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// # use std::time::Duration;
    /// let page = cache.get_or_refresh("home", load).fresh_for(Duration::from_secs(60)).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fresh_for(self, duration: Duration) -> Self {
        Self(self.0.fresh_for(duration))
    }

    /// See [`Policy::stale_for`].
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// # use std::time::Duration;
    /// let page = cache.get_or_refresh("home", load).stale_for(Duration::from_secs(600)).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stale_for(self, duration: Duration) -> Self {
        Self(self.0.stale_for(duration))
    }

    /// See [`Policy::wait_at_most`].
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// # use std::time::Duration;
    /// let page = cache.get_or_refresh("home", load).wait_at_most(Duration::from_secs(1)).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_at_most(self, limit: Duration) -> Self {
        Self(self.0.wait_at_most(limit))
    }

    /// See [`GetOrRefresh::must_be_fresh`](crate::cache::GetOrRefresh::must_be_fresh).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let page = cache.get_or_refresh("home", load).must_be_fresh().wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn must_be_fresh(self) -> Self {
        Self(self.0.must_be_fresh())
    }

    /// See [`GetOrRefresh::never_wait`](crate::cache::GetOrRefresh::never_wait).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let page = cache.get_or_refresh("home", load).never_wait().wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn never_wait(self) -> Self {
        Self(self.0.never_wait())
    }

    /// All settings at once.
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let page = cache.get_or_refresh("home", load).policy(leasehold::cache::Policy::default()).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy(self, policy: Policy) -> Self {
        Self(self.0.policy(policy))
    }

    /// See [`GetOrRefresh::lifetime`](crate::cache::GetOrRefresh::lifetime).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let page = cache.get_or_refresh("home", load).lifetime(|_| leasehold::cache::Lifetime::NotStored).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lifetime(self, lifetime: impl FnOnce(&V) -> Lifetime + Send + 'static) -> Self {
        Self(self.0.lifetime(lifetime))
    }

    /// The stored value, or the loader's if no other caller loads.
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// # let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// let page = cache.get_or_refresh("home", load).wait()?;
    /// assert_eq!(*page, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
pub struct GetManyOrRefresh<V, C>(pub(super) crate::cache::GetManyOrRefresh<V, C>);

impl<V: Send + Sync + 'static, C: Codec<V>> GetManyOrRefresh<V, C> {
    /// All settings at once.
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// let load = |keys: Vec<String>| {
    ///     Ok::<_, std::io::Error>(keys.into_iter().map(|key| (key, 7)).collect())
    /// };
    /// let found = cache.get_many_or_refresh(["a", "b"], load).policy(leasehold::cache::Policy::default()).wait()?;
    /// println!("{found:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy(self, policy: Policy) -> Self {
        Self(self.0.policy(policy))
    }

    /// See [`GetManyOrRefresh::lifetime`](crate::cache::GetManyOrRefresh::lifetime).
    ///
    /// ```
    /// # let cache = leasehold::blocking::Client::embedded()?.cache();
    /// let load = |keys: Vec<String>| {
    ///     Ok::<_, std::io::Error>(keys.into_iter().map(|key| (key, 7)).collect())
    /// };
    /// let found = cache.get_many_or_refresh(["a", "b"], load).lifetime(|_| leasehold::cache::Lifetime::NotStored).wait()?;
    /// println!("{found:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lifetime(self, lifetime: impl Fn(&V) -> Lifetime + Send + Sync + 'static) -> Self {
        Self(self.0.lifetime(lifetime))
    }

    /// The stored values and the loader's.
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

//! One call of `get_or_refresh`: its settings and its loader.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::cache::Value;
use tokio::sync::oneshot;

use super::cached::Cached;
use super::codec::{self, Codec};
use super::error::Error;
use super::run::run;
use crate::client::Client;
use crate::guard::{
    Decoded, Failure, LoadResult, LoadScope, LoadedValue, Loader, Policy, ReadRequest,
};
use crate::runtime::Home;

/// How long one loaded value is stored: see [`GetOrRefresh::lifetime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The durations of the [`Policy`].
    Default,
    /// Fresh for the first duration, then stale for the second: a shorter lifetime for a "not found", for example. Longer durations
    /// than 366 days are cut to 366 days.
    For(Duration, Duration),
    /// The value is not stored. The waiting callers get it, and the next call loads again.
    NotStored,
}

type LoadFn<V> = Box<dyn FnOnce() -> BoxFuture<'static, Result<V, Failure>> + Send>;
type LifetimeOf<V> = Box<dyn FnOnce(&V) -> Lifetime + Send>;

/// A call of [`Cache::get_or_refresh`](super::Cache::get_or_refresh). Await it for the value.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::embedded()?;
/// use std::time::Duration;
/// use leasehold::cache::Lifetime;
///
/// let user = client
///     .cache()
///     .get_or_refresh("user:7", || async { Ok::<_, std::io::Error>(None::<String>) })
///     .fresh_for(Duration::from_secs(60))
///     .wait_at_most(Duration::from_secs(5))
///     .lifetime(|user| match user {
///         None => Lifetime::For(Duration::from_secs(5), Duration::ZERO),
///         Some(_) => Lifetime::Default,
///     })
///     .await?;
/// assert!(user.is_none());
/// # client.close().await; Ok(()) }
/// ```
#[must_use = "nothing happens until it is awaited"]
pub struct GetOrRefresh<V, C> {
    client: Client,
    key: String,
    policy: Policy,
    load: LoadFn<V>,
    lifetime: LifetimeOf<V>,
    never_waits: bool,
    codec: PhantomData<C>,
}

impl<V, C> fmt::Debug for GetOrRefresh<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetOrRefresh")
            .field("key", &self.key)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> GetOrRefresh<V, C> {
    pub(super) fn new<E, F>(
        client: &Client,
        policy: &Policy,
        key: &str,
        loader: impl FnOnce() -> F + Send + 'static,
    ) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let load = || async move { loader().await.map_err(|error| failure(error.into())) }.boxed();
        Self {
            client: client.clone(),
            key: key.to_owned(),
            policy: policy.clone(),
            load: Box::new(load),
            lifetime: Box::new(|_| Lifetime::Default),
            never_waits: false,
            codec: PhantomData,
        }
    }

    /// See [`Policy::fresh_for`].
    pub fn fresh_for(mut self, duration: Duration) -> Self {
        self.policy = self.policy.fresh_for(duration);
        self
    }

    /// See [`Policy::stale_for`].
    pub fn stale_for(mut self, duration: Duration) -> Self {
        self.policy = self.policy.stale_for(duration);
        self
    }

    /// See [`Policy::wait_at_most`].
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.policy = self.policy.wait_at_most(limit);
        self
    }

    /// Waits for a fresh value, even if there is a stale one: see [`Policy::must_be_fresh`].
    pub fn must_be_fresh(mut self) -> Self {
        self.policy = self.policy.must_be_fresh(true);
        self
    }

    /// Loads the value or fails at once: [`Error::Busy`] while another caller loads, or during the back-off after a failed load. For
    /// background jobs that keep an entry fresh and do not use its value.
    pub fn never_wait(mut self) -> Self {
        self.never_waits = true;
        self
    }

    /// Replaces all settings.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how long the loaded value is stored, by its content: `|page| if page.is_none() { Lifetime::For(..) } else { Lifetime::Default }`.
    pub fn lifetime(mut self, lifetime: impl FnOnce(&V) -> Lifetime + Send + 'static) -> Self {
        self.lifetime = Box::new(lifetime);
        self
    }

    async fn ask(self) -> Result<Cached<V>, Error> {
        let name = self.client.entry(&self.key)?;
        self.policy.check()?;
        let (passed, is_passed) = oneshot::channel();
        let loader = Single::<V, C> {
            passed: self.never_waits.then_some(passed),
            load: self.load,
            lifetime: self.lifetime,
            usual: (self.policy.fresh_for, self.policy.stale_for),
            codec: PhantomData,
        };
        let request = ReadRequest {
            key: name.clone(),
            policy: self.policy,
            loader: Some(Box::new(loader)),
            home: Home::here(),
            scope: LoadScope::here(),
            caller: self.client.guard.caller(),
            decode: decode::<V, C>,
        };
        let guard = self.client.guard.inner();
        let answer = tokio::select! {
            biased;
            answer = run(&self.client, &name, guard.get(request)) => answer?,
            // If the caller waits, the sender is dropped, and this branch is never taken.
            Ok(()) = is_passed => {
                let (key, waited) = (name.as_str().to_owned(), Duration::ZERO);
                return Err(Error::Busy { key, waited });
            }
        };
        Cached::of(&name, answer)
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> IntoFuture for GetOrRefresh<V, C> {
    type Output = Result<Cached<V>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.ask().boxed()
    }
}

/// The loader of one call.
struct Single<V, C> {
    /// Set for a caller that does not wait for another load.
    passed: Option<oneshot::Sender<()>>,
    load: LoadFn<V>,
    lifetime: LifetimeOf<V>,
    usual: (Duration, Duration),
    codec: PhantomData<fn() -> C>,
}

impl<V: Send + Sync + 'static, C: Codec<V>> Loader for Single<V, C> {
    fn passed_over(&mut self) {
        if let Some(passed) = self.passed.take() {
            // Fails if the caller has gone.
            let _told: Result<(), ()> = passed.send(());
        }
    }

    fn load(self: Box<Self>) -> BoxFuture<'static, LoadResult> {
        async move {
            match (self.load)().await {
                Ok(value) => encode_loaded::<V, C>(&value, (self.lifetime)(&value), self.usual),
                Err(failure) => LoadResult::Failed(failure),
            }
        }
        .boxed()
    }
}

/// Encodes a loaded value.
pub(super) fn encode_loaded<V, C: Codec<V>>(
    value: &V,
    lifetime: Lifetime,
    usual: (Duration, Duration),
) -> LoadResult {
    let (fresh_for, stale_for) = match lifetime {
        Lifetime::Default => usual,
        Lifetime::For(fresh_for, stale_for) => (fresh_for, stale_for),
        Lifetime::NotStored => (Duration::ZERO, Duration::ZERO),
    };
    match C::encode(value) {
        Ok(bytes) => LoadResult::Value(LoadedValue {
            body: bytes.into(),
            format: C::FORMAT,
            fresh_for,
            stale_for,
        }),
        Err(error) => LoadResult::Failed(failure(error)),
    }
}

pub(super) fn failure(error: Box<dyn StdError + Send + Sync>) -> Failure {
    Failure {
        text: error.to_string(),
        source: Some(Arc::from(error)),
    }
}

/// Reads a stored value as a `V`.
pub(super) fn decode<V: Send + Sync + 'static, C: Codec<V>>(value: &Value) -> Option<Decoded> {
    let decoded = codec::read::<V, C>(value).ok()?;
    Some(Arc::new(decoded))
}

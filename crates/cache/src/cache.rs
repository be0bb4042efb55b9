//! The cache and its calls: their settings, and their loaders.

use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use leasehold::entries::LoaderRuntime;
use leasehold::{Client, Invalid};
use leasehold_core::LockName;
use tokio::sync::{mpsc, oneshot};

use crate::guard::{Guard, Read};
use crate::load::{Call, LoadResult, LoadScope, Loaded, Loader};
use crate::local_cache::Limits;
use crate::policy::Policy;
use crate::value::{
    AnyFormat, Cached, Codec, Encoding, Error, Failure, Json, MessagePack, Raw, Refusal,
};

/// A cache of values in the store of a client. Cheap to clone: clones share their loads, and the values that they keep in this process.
pub struct Cache<C = Json> {
    pub(crate) guard: Arc<Guard>,
    policy: Policy,
    codec: PhantomData<fn() -> C>,
    /// Dropped after the guard, since that may wait for the rest.
    client: Client,
}

impl Cache {
    /// A cache in the store of `client`, with values as JSON and the default [`Policy`]. Does no I/O.
    ///
    /// Make one for a client, and clone it: caches share no loads.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// use leasehold_cache::Cache;
    ///
    /// let cache = Cache::new(&client);
    /// let load = || async { Ok::<_, std::io::Error>(6 * 7) };
    /// assert_eq!(*cache.get_or_refresh("answer", load).await?, 42);
    /// # client.close().await; Ok(()) }
    /// ```
    pub fn new(client: &Client) -> Self {
        let entries = client.entries();
        Self::over(client, Guard::new(&entries, client.id(), None))
    }

    /// A cache that also keeps up to `max_bytes` of fresh values in this process, so reading a hot entry costs no request.
    ///
    /// On Redis, the server pushes each change of an entry to this client by `CLIENT TRACKING`: an invalidation or a newer value of another
    /// process, `DEL`, `FLUSHALL`, eviction. Until the push arrives, this client may still return the old value as fresh. So an
    /// invalidation by another process takes effect a moment later.
    ///
    /// A value is returned for at most `max_age` after it was read. That bound also holds without pushes: for `local:`, for a Redis user
    /// that may not use `CLIENT TRACKING`, and for a broken connection that the client has not noticed yet.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    /// use leasehold_cache::Cache;
    ///
    /// let cache = Cache::in_process(&client, 64_000_000, Duration::from_secs(30));
    /// # client.close().await; Ok(()) }
    /// ```
    pub fn in_process(client: &Client, max_bytes: u64, max_age: Duration) -> Self {
        let (entries, limits) = (client.entries(), Limits { max_bytes, max_age });
        Self::over(client, Guard::new(&entries, client.id(), Some(limits)))
    }

    /// A cache of this client with this guard.
    pub(crate) fn over(client: &Client, guard: Arc<Guard>) -> Self {
        Self {
            guard,
            policy: Policy::default(),
            codec: PhantomData,
            client: client.clone(),
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
    /// use leasehold_cache::{Cache, Policy};
    ///
    /// let cache = Cache::new(&client).policy(Policy::default().fresh_for(Duration::from_secs(5)));
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
    /// use leasehold_cache::Cache;
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
    ///     async fn name(&self, id: u32) -> Result<String, leasehold_cache::Error> {
    ///         let db = self.db.clone();
    ///         let load = move || async move { db.name(id).await };
    ///         let name = self.cache.get_or_refresh(format!("user:{id}"), load).await?;
    ///         Ok(String::clone(&name))
    ///     }
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::embedded()?;
    /// let users = Users { db: Arc::new(Db), cache: Cache::new(&client) };
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
    /// use leasehold_cache::Cache;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn Error>> {
    /// # let client = Client::embedded()?;
    /// let load = || async {
    ///     let text = String::from_utf8(b"42".to_vec())?;
    ///     let answer: u32 = text.parse()?;
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(answer)
    /// };
    /// let cache = Cache::new(&client);
    /// assert_eq!(*cache.get_or_refresh("answer", load).await?, 42);
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
        E: Into<Box<dyn StdError + Send + Sync>>,
        F: Future<Output = Result<V, E>> + Send + 'static,
        L: FnOnce() -> F + Send + 'static,
    {
        let load = async move { loader().await.map_err(Failure::of) };
        GetOrRefresh {
            cache: self.clone(),
            key: key.as_ref().to_owned(),
            load: load.boxed(),
            lifetime: Box::new(|_| Lifetime::Default),
            never_waits: false,
        }
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
    /// use leasehold_cache::Cache;
    ///
    /// let load = |keys: Vec<String>| async move {
    ///     let lengths = keys.into_iter().map(|key| (key.clone(), key.len()));
    ///     Ok::<_, std::io::Error>(lengths.collect::<HashMap<_, _>>())
    /// };
    /// let cache = Cache::new(&client);
    /// let batch = cache.get_many_or_refresh(["a", "bc"], load).await?;
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
        E: Into<Box<dyn StdError + Send + Sync>>,
        F: Future<Output = Result<HashMap<String, V>, E>> + Send + 'static,
        L: Fn(Vec<String>) -> F + Send + Sync + 'static,
    {
        let load = move |keys| {
            let loading = loader(keys);
            async move { loading.await.map_err(Failure::of) }.boxed()
        };
        let keys = keys.into_iter().map(|key| key.as_ref().to_owned());
        GetManyOrRefresh {
            cache: self.clone(),
            keys: keys.collect(),
            load: Arc::new(load),
            lifetime: Arc::new(|_| Lifetime::Default),
        }
    }

    /// The stored value of `key`, fresh or stale, if there is one. Loads nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// use leasehold_cache::Cache;
    ///
    /// let cache = Cache::new(&client);
    /// assert!(cache.get::<String>("home").await?.is_none());
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
        let key = self.key(key.as_ref())?;
        let found = self.attend(self.guard.find(&key)).await?;
        let found = found.map_err(|refusal| self.error(&key, refusal))?;
        let (Some(value), now_ms) = (found.value, found.now_ms) else {
            return Ok(None);
        };
        let cached = Cached::read::<C>(&value, now_ms).map_err(|why| Error::Value {
            key: key.as_str().to_owned(),
            why,
        })?;
        Ok(Some(cached))
    }

    /// Makes the value of `key` stale, and also the values of loads that are under way. Readers take the stale value or wait, by their
    /// policy, and one of them refreshes it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// # let cache = leasehold_cache::Cache::new(&client);
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
        let key = self.key(key)?;
        self.attend(self.guard.invalidate(&key, remove)).await?
    }
}

impl<C> Cache<C> {
    fn with<D>(&self) -> Cache<D> {
        Cache {
            guard: self.guard.clone(),
            policy: self.policy.clone(),
            codec: PhantomData,
            client: self.client.clone(),
        }
    }

    /// The key of an entry.
    fn key(&self, key: &str) -> Result<LockName, Invalid> {
        self.guard.loads.entries.key(key)
    }

    /// Polls `work` with the timers of the client, unless that is closed.
    async fn attend<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        Ok(self.guard.loads.entries.with_timers(work).await?)
    }

    fn error(&self, key: &LockName, refusal: Refusal) -> Error {
        refusal.into_error(key, self.guard.loads.entries.clock().now())
    }

    /// A read of this entry by the current task.
    fn call(&self, key: LockName) -> Call {
        Call {
            key,
            policy: self.policy.clone(),
            runtime: LoaderRuntime::here(),
            scope: LoadScope::here(),
            span: self.guard.loads.telemetry.caller(),
        }
    }
}

impl<C> Clone for Cache<C> {
    fn clone(&self) -> Self {
        self.with()
    }
}

impl<C> fmt::Debug for Cache<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("client", &self.client)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

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

/// A call of [`Cache::get_or_refresh`]. Await it for the value.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::embedded()?;
/// use std::time::Duration;
/// use leasehold_cache::{Cache, Lifetime};
///
/// let user = Cache::new(&client)
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
#[must_use = "nothing happens until it is awaited, or `wait` is called"]
pub struct GetOrRefresh<V, C> {
    cache: Cache<C>,
    key: String,
    load: BoxFuture<'static, Result<V, Failure>>,
    lifetime: Box<dyn FnOnce(&V) -> Lifetime + Send>,
    never_waits: bool,
}

impl<V, C> fmt::Debug for GetOrRefresh<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetOrRefresh")
            .field("key", &self.key)
            .field("policy", &self.cache.policy)
            .finish_non_exhaustive()
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> GetOrRefresh<V, C> {
    /// See [`Policy::fresh_for`].
    pub fn fresh_for(mut self, duration: Duration) -> Self {
        self.cache.policy = self.cache.policy.fresh_for(duration);
        self
    }

    /// See [`Policy::stale_for`].
    pub fn stale_for(mut self, duration: Duration) -> Self {
        self.cache.policy = self.cache.policy.stale_for(duration);
        self
    }

    /// See [`Policy::wait_at_most`].
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.cache.policy = self.cache.policy.wait_at_most(limit);
        self
    }

    /// Waits for a fresh value, even if there is a stale one: see [`Policy::must_be_fresh`].
    pub fn must_be_fresh(mut self) -> Self {
        self.cache.policy = self.cache.policy.must_be_fresh(true);
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
        self.cache.policy = policy;
        self
    }

    /// Sets how long the loaded value is stored, by its content: `|page| if page.is_none() { Lifetime::For(..) } else { Lifetime::Default }`.
    pub fn lifetime(mut self, lifetime: impl FnOnce(&V) -> Lifetime + Send + 'static) -> Self {
        self.lifetime = Box::new(lifetime);
        self
    }

    /// Blocks the thread until there is a value. Do not use it in async code.
    ///
    /// ```
    /// use leasehold::blocking::Client;
    /// use leasehold_cache::blocking::Cache;
    ///
    /// let cache = Cache::new(&Client::embedded()?);
    /// let load = || Ok::<_, std::io::Error>(String::from("<h1>hello</h1>"));
    /// assert_eq!(*cache.get_or_refresh("home", load).must_be_fresh().wait()?, "<h1>hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    #[cfg(feature = "blocking")]
    pub fn wait(self) -> Result<Cached<V>, Error> {
        leasehold::block_on(self.ask())
    }

    async fn ask(self) -> Result<Cached<V>, Error> {
        let cache = self.cache;
        let key = cache.key(&self.key)?;
        cache.policy.check()?;
        let (load, lifetime, policy) = (self.load, self.lifetime, cache.policy.clone());
        let load = async move {
            let value = load.await?;
            let lifetime = lifetime(&value);
            encode::<V, C>(&value, lifetime, &policy)
        };
        let (passed, is_passed) = oneshot::channel();
        let loader = Box::new(LoaderOfOne {
            load: load.boxed(),
            passed: self.never_waits.then_some(passed),
        });
        let call = cache.call(key.clone());
        let answer = tokio::select! {
            biased;
            answer = cache.attend(cache.guard.get::<V, C>(Read { call, loader })) => answer?,
            // If the caller waits, the sender is dropped, and this branch is never taken.
            Ok(()) = is_passed => Err(Refusal::Busy(Duration::ZERO)),
        };
        answer.map_err(|refusal| cache.error(&key, refusal))
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> IntoFuture for GetOrRefresh<V, C> {
    type Output = Result<Cached<V>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.ask().boxed()
    }
}

/// The loader of a call of one entry.
struct LoaderOfOne {
    load: BoxFuture<'static, LoadResult>,
    /// Set for a caller that does not wait for another load.
    passed: Option<oneshot::Sender<()>>,
}

impl Loader for LoaderOfOne {
    fn passed_over(&mut self) {
        if let Some(passed) = self.passed.take() {
            // Fails if the caller has gone.
            let _told: Result<(), ()> = passed.send(());
        }
    }

    fn load(self: Box<Self>) -> BoxFuture<'static, LoadResult> {
        self.load
    }
}

/// A call of [`Cache::get_many_or_refresh`]. Await it for the values. An entry that waits for another caller's load does not delay the load of the
/// others.
#[must_use = "nothing happens until it is awaited, or `wait` is called"]
pub struct GetManyOrRefresh<V, C> {
    cache: Cache<C>,
    keys: Vec<String>,
    load: LoadMany<V>,
    lifetime: Arc<dyn Fn(&V) -> Lifetime + Send + Sync>,
}

type LoadMany<V> = Arc<
    dyn Fn(Vec<String>) -> BoxFuture<'static, Result<HashMap<String, V>, Failure>> + Send + Sync,
>;

impl<V, C> fmt::Debug for GetManyOrRefresh<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetManyOrRefresh")
            .field("keys", &self.keys)
            .field("policy", &self.cache.policy)
            .finish_non_exhaustive()
    }
}

/// The values and errors of several keys. A key that is in neither map has no value.
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchResult<V> {
    /// The values by their keys.
    pub values: HashMap<String, Cached<V>>,
    /// The errors by their keys.
    pub failed: HashMap<String, Error>,
}

impl<V> BatchResult<V> {
    /// All values, or the error of one key.
    ///
    /// # Errors
    /// One of [`BatchResult::failed`].
    pub fn all(self) -> Result<HashMap<String, Cached<V>>, Error> {
        match self.failed.into_values().next() {
            None => Ok(self.values),
            Some(error) => Err(error),
        }
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> GetManyOrRefresh<V, C> {
    /// Replaces all settings.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.cache.policy = policy;
        self
    }

    /// Sets how long each loaded value is stored, by its content.
    pub fn lifetime(mut self, lifetime: impl Fn(&V) -> Lifetime + Send + Sync + 'static) -> Self {
        self.lifetime = Arc::new(lifetime);
        self
    }

    /// Blocks the thread until there are the values. Do not use it in async code.
    ///
    /// # Errors
    /// See [`Error`]; those of single keys are in [`BatchResult::failed`].
    #[cfg(feature = "blocking")]
    pub fn wait(self) -> Result<BatchResult<V>, Error> {
        leasehold::block_on(self.ask())
    }

    async fn ask(self) -> Result<BatchResult<V>, Error> {
        let cache = self.cache;
        cache.policy.check()?;
        let mut result = BatchResult {
            values: HashMap::new(),
            failed: HashMap::new(),
        };
        let (mut keys, mut known) = (Vec::new(), HashSet::new());
        for key in &self.keys {
            let key = cache.key(key)?;
            if known.insert(key.clone()) {
                keys.push(key);
            }
        }
        let Some(first) = keys.first() else {
            return Ok(result);
        };
        let call = cache.call(first.clone());
        let (load, lifetime, policy) = (self.load, self.lifetime, cache.policy.clone());
        let (client, scope) = (cache.client.id(), call.scope.clone());
        let load: LoadSome = Arc::new(move |keys: Vec<LockName>| {
            let names = keys.iter().map(|key| key.as_str().to_owned()).collect();
            let (load, lifetime, policy) = (load.clone(), lifetime.clone(), policy.clone());
            let work = async move {
                let loaded = load(names).await?.into_iter().map(|(name, value)| {
                    let encoded = encode::<V, C>(&value, lifetime(&value), &policy);
                    (name, encoded)
                });
                Ok::<_, Failure>(Arc::new(loaded.collect::<HashMap<_, _>>()))
            };
            scope.around(client, &keys, work).boxed()
        });
        let (enters, mut entered) = mpsc::unbounded_channel();
        let joint = {
            let load = load.clone();
            async move {
                let mut keys = Vec::new();
                while let Some(key) = entered.recv().await {
                    keys.push(key);
                }
                load(keys).await
            }
        };
        let joint = joint.boxed().shared();
        let read = |key: &LockName| Read {
            call: Call {
                key: key.clone(),
                ..call.clone()
            },
            loader: Box::new(LoaderOfMany {
                key: key.clone(),
                enters: Some(enters.clone()),
                joint: joint.clone(),
                load: load.clone(),
            }),
        };
        let reads = keys.iter().map(read).collect();
        // Now only the loaders keep the joint load from beginning.
        drop(enters);
        let answers = cache.attend(cache.guard.get_many::<V, C>(reads)).await?;
        let answers = answers.map_err(|refusal| cache.error(&keys[0], refusal))?;
        for (key, answer) in keys.iter().zip(answers) {
            let name = key.as_str().to_owned();
            match answer {
                Ok(cached) => drop(result.values.insert(name, cached)),
                Err(Refusal::Nothing) => {}
                Err(refusal) => drop(result.failed.insert(name, cache.error(key, refusal))),
            }
        }
        Ok(result)
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> IntoFuture for GetManyOrRefresh<V, C> {
    type Output = Result<BatchResult<V>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.ask().boxed()
    }
}

/// Loads some of the entries of a call.
type LoadSome = Arc<dyn Fn(Vec<LockName>) -> BoxFuture<'static, LoadedSome> + Send + Sync>;
type LoadedSome = Result<Arc<HashMap<String, LoadResult>>, Failure>;

/// The loader of one entry of a call of several.
struct LoaderOfMany {
    key: LockName,
    /// Set until another caller loads this entry. The joint load begins when no loader of the call has it any more, and loads the entries
    /// that were sent.
    enters: Option<mpsc::UnboundedSender<LockName>>,
    joint: Shared<BoxFuture<'static, LoadedSome>>,
    load: LoadSome,
}

impl Loader for LoaderOfMany {
    fn passed_over(&mut self) {
        self.enters = None;
    }

    fn load(self: Box<Self>) -> BoxFuture<'static, LoadResult> {
        let this = *self;
        let loading = async move {
            let all = match this.enters {
                Some(enters) => {
                    // The receiver is in the joint load.
                    drop(enters.send(this.key.clone()));
                    drop(enters);
                    this.joint.await
                }
                // The load of the other entries has begun already.
                None => (this.load)(vec![this.key.clone()]).await,
            };
            all?.get(this.key.as_str()).cloned().unwrap_or(Ok(None))
        };
        loading.boxed()
    }
}

/// Encodes a loaded value.
fn encode<V, C: Codec<V>>(value: &V, lifetime: Lifetime, policy: &Policy) -> LoadResult {
    let (fresh_for, stale_for) = match lifetime {
        Lifetime::Default => (policy.fresh_for, policy.stale_for),
        Lifetime::For(fresh_for, stale_for) => (fresh_for, stale_for),
        Lifetime::NotStored => (Duration::ZERO, Duration::ZERO),
    };
    let bytes = C::encode(value).map_err(Failure::of)?;
    Ok(Some(Loaded {
        body: bytes.into(),
        format: C::FORMAT,
        fresh_for,
        stale_for,
    }))
}

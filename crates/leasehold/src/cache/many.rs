//! Several entries in one call, and one call of the loader for those that this call loads. An entry that waits for another caller's load
//! does not delay the load of the others.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use leasehold_core::LockName;
use tokio::sync::watch;

use super::cached::Cached;
use super::call::{Lifetime, decode, encode_loaded, failure};
use super::codec::Codec;
use super::error::Error;
use super::run::run;
use crate::client::Client;
use crate::guard::{Failure, LoadResult, LoadScope, Loader, Policy, ReadRequest, Refusal};
use crate::runtime::Home;
use crate::sync::Mutex;

/// A call of [`Cache::get_many_or_refresh`](super::Cache::get_many_or_refresh). Await it for the values.
#[must_use = "nothing happens until it is awaited"]
pub struct GetManyOrRefresh<V, C> {
    client: Client,
    keys: Vec<String>,
    policy: Policy,
    load: LoadMany<V>,
    lifetime: Arc<dyn Fn(&V) -> Lifetime + Send + Sync>,
    codec: PhantomData<C>,
}

type LoadMany<V> = Arc<
    dyn Fn(Vec<String>) -> BoxFuture<'static, Result<HashMap<String, V>, Failure>> + Send + Sync,
>;

impl<V, C> fmt::Debug for GetManyOrRefresh<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetManyOrRefresh")
            .field("keys", &self.keys)
            .field("policy", &self.policy)
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
    pub(super) fn new<E, F>(
        client: &Client,
        policy: &Policy,
        keys: Vec<String>,
        loader: impl Fn(Vec<String>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = Result<HashMap<String, V>, E>> + Send + 'static,
    {
        let load = move |keys| {
            let loading = loader(keys);
            async move { loading.await.map_err(|error| failure(error.into())) }.boxed()
        };
        Self {
            client: client.clone(),
            keys,
            policy: policy.clone(),
            load: Arc::new(load),
            lifetime: Arc::new(|_| Lifetime::Default),
            codec: PhantomData,
        }
    }

    /// Replaces all settings.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how long each loaded value is stored, by its content.
    pub fn lifetime(mut self, lifetime: impl Fn(&V) -> Lifetime + Send + Sync + 'static) -> Self {
        self.lifetime = Arc::new(lifetime);
        self
    }

    async fn ask(self) -> Result<BatchResult<V>, Error> {
        self.policy.check()?;
        let mut names: Vec<LockName> = Vec::new();
        let mut known = HashSet::new();
        for key in &self.keys {
            let name = self.client.entry(key)?;
            if known.insert(name.clone()) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(BatchResult {
                values: HashMap::new(),
                failed: HashMap::new(),
            });
        }
        let usual = (self.policy.fresh_for, self.policy.stale_for);
        let (home, scope) = (Home::here(), LoadScope::here());
        let guard = self.client.guard.inner();
        let (load, lifetime) = (self.load, self.lifetime);
        let (within, outer) = (guard.clone(), scope.clone());
        let work = move |names: Vec<LockName>| {
            let (load, lifetime) = (load.clone(), lifetime.clone());
            let keys = names.iter().map(|name| name.as_str().to_owned()).collect();
            let work = async move {
                let loaded = load(keys).await?.into_iter().map(|(key, value)| {
                    let end = encode_loaded::<V, C>(&value, lifetime(&value), usual);
                    (key, end)
                });
                Ok(Arc::new(loaded.collect()))
            };
            outer.around(&within, names, work).boxed()
        };
        let batch = Arc::new(BatchLoad {
            work: Box::new(work),
            share: Mutex::default(),
            undecided: watch::Sender::new(names.len()),
        });
        let caller = self.client.guard.caller();
        let requests = names.iter().map(|name| ReadRequest {
            key: name.clone(),
            policy: self.policy.clone(),
            loader: Some(Box::new(Member {
                key: name.clone(),
                batch: batch.clone(),
                decided: false,
            })),
            home: home.clone(),
            scope: scope.clone(),
            caller: caller.clone(),
            decode: decode::<V, C>,
        });
        let requests = requests.collect();
        let answers = run(&self.client, &names[0], guard.get_many(requests)).await?;
        let mut many = BatchResult {
            values: HashMap::new(),
            failed: HashMap::new(),
        };
        for (name, answer) in names.into_iter().zip(answers) {
            let key = name.as_str().to_owned();
            let got = match answer {
                Ok(answer) => Cached::of(&name, answer),
                Err(Refusal::Nothing) => continue,
                Err(refusal) => Err(Error::of(&key, refusal)),
            };
            match got {
                Ok(got) => drop(many.values.insert(key, got)),
                Err(error) => drop(many.failed.insert(key, error)),
            }
        }
        Ok(many)
    }
}

impl<V: Send + Sync + 'static, C: Codec<V>> IntoFuture for GetManyOrRefresh<V, C> {
    type Output = Result<BatchResult<V>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.ask().boxed()
    }
}

type Ends = Result<Arc<HashMap<String, LoadResult>>, Failure>;
type Work = Box<dyn Fn(Vec<LockName>) -> BoxFuture<'static, Ends> + Send + Sync>;

/// The loads of one call.
struct BatchLoad {
    work: Work,
    share: Mutex<Joint>,
    /// The number of keys for which it is not known yet whether this call loads them. At zero the load begins.
    undecided: watch::Sender<usize>,
}

/// The keys that are loaded together.
#[derive(Default)]
struct Joint {
    keys: Vec<LockName>,
    load: Option<Shared<BoxFuture<'static, Ends>>>,
}

impl BatchLoad {
    fn add(&self, key: LockName) {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        share.keys.push(key);
    }

    fn decided(&self) {
        self.undecided.send_modify(|undecided| *undecided -= 1);
    }

    /// The load of all keys together, once all are known.
    async fn joint(&self) -> Ends {
        let mut undecided = self.undecided.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(undecided.wait_for(|undecided| *undecided == 0).await);
        let load = {
            let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
            let Joint { keys, load } = &mut *share;
            load.get_or_insert_with(|| (self.work)(std::mem::take(keys)).shared())
                .clone()
        };
        load.await
    }
}

/// The loader of one key of a call.
struct Member {
    key: LockName,
    batch: Arc<BatchLoad>,
    /// Whether it is known that another caller loads this key, or that this call does.
    decided: bool,
}

impl Member {
    fn decide(&mut self) {
        if !std::mem::replace(&mut self.decided, true) {
            self.batch.decided();
        }
    }
}

impl Loader for Member {
    fn passed_over(&mut self) {
        self.decide();
    }

    fn load(mut self: Box<Self>) -> BoxFuture<'static, LoadResult> {
        async move {
            let ends = if self.decided {
                // The load of the other keys has begun already.
                (self.batch.work)(vec![self.key.clone()]).await
            } else {
                self.batch.add(self.key.clone());
                self.decide();
                self.batch.joint().await
            };
            match ends {
                Ok(ends) => ends
                    .get(self.key.as_str())
                    .cloned()
                    .unwrap_or(LoadResult::Nothing),
                Err(failure) => LoadResult::Failed(failure),
            }
        }
        .boxed()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.decide();
    }
}

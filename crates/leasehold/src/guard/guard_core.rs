//! The state of a guard: the shared loads under way, the local cache, and the store.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::cache::{Reply, Step};
use tokio::sync::watch;

use super::answer::Refusal;
use super::local_cache::LocalCache;
use super::reporting;
use super::shared_load::SharedLoad;
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::Engine;
use crate::store::Notice;
use crate::store::entries::{Entries, Looked, Taken};
use crate::sync::{Mutex, MutexGuard};

/// How often a request is made before its failure counts, and the pauses between.
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The state that all handles and shared loads of a guard share.
pub(crate) struct GuardCore {
    pub(super) engine: Arc<Engine>,
    entries: Option<Arc<dyn Entries>>,
    shared_loads: Mutex<HashMap<LockName, Arc<SharedLoad>>>,
    pub(super) layer: Option<LocalCache>,
    /// No handle is left, or the client is being closed.
    pub(super) leaving: watch::Sender<bool>,
}

impl GuardCore {
    pub(super) fn new(
        engine: Arc<Engine>,
        entries: Option<Arc<dyn Entries>>,
        layer: Option<LocalCache>,
    ) -> Self {
        Self {
            engine,
            entries,
            shared_loads: Mutex::default(),
            layer,
            leaving: watch::Sender::new(false),
        }
    }

    /// Drops the local values of these entries; `None` is all of them.
    fn forget(&self, keys: Option<&[String]>) {
        match (&self.layer, keys) {
            (None, _) => {}
            (Some(layer), None) => layer.forget_all(),
            (Some(layer), Some(keys)) => {
                for key in keys {
                    layer.forget(&LockName::from_key(key));
                }
            }
        }
    }

    /// The entries of the store. A quorum has none.
    pub(super) fn entries(&self) -> Option<&dyn Entries> {
        self.entries.as_deref()
    }

    /// Reads entries from the store. Loads nothing.
    pub(crate) async fn look<'a>(&'a self, keys: &'a [LockName]) -> Result<Looked, Refusal> {
        self.persist(|entries| entries.look(keys)).await
    }

    /// Makes the stored value stale, or removes it, and also the values of loads under way.
    pub(crate) async fn invalidate(&self, key: &LockName, remove: bool) -> Result<(), Refusal> {
        let step = Step::Invalidate { remove };
        let taken = self.take(key, &step).await;
        // Also if it was not confirmed, and before the store's notice arrives.
        if let Some(layer) = &self.layer {
            layer.forget(key);
        }
        let result = taken.and_then(|taken| match taken.reply {
            Reply::Invalidated => Ok(()),
            Reply::Foreign(kind) => Err(Refusal::Foreign(kind)),
            other => Err(self.unexpected(&other)),
        });
        reporting::invalidated(&self.engine.telemetry, key, &result);
        result
    }

    /// Takes a step, again if the store gave no verdict.
    pub(crate) async fn take<'a>(
        &'a self,
        key: &'a LockName,
        step: &'a Step,
    ) -> Result<Taken, Refusal> {
        self.persist(|entries| entries.take(key, step)).await
    }

    async fn persist<'a, T>(
        &'a self,
        request: impl Fn(&'a dyn Entries) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, Refusal> {
        let Some(entries) = self.entries() else {
            let why = "it keeps no cache entries: use one server for them";
            let (store, kind) = (self.engine.store.label(), StoreErrorKind::Misconfigured);
            return Err(Refusal::Store(StoreError::new(store, kind, why)));
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 1;
        loop {
            match request(entries).await {
                Ok(answer) => return Ok(answer),
                // A request that has timed out has been tried for long enough.
                Err(error)
                    if tries == TRIES
                        || !error.kind.is_transient()
                        || error.kind == StoreErrorKind::TimedOut =>
                {
                    return Err(Refusal::Store(error));
                }
                // The first retry is immediate: usually a connection has failed, and there may be a new one.
                Err(_) if tries == 1 => {}
                Err(_) => self.engine.clock.sleep(backoff.pause()).await,
            }
            tries += 1;
        }
    }

    /// Removes a shared load that is over. The next caller begins another one.
    pub(super) fn finish(&self, key: &LockName, shared_load: &Arc<SharedLoad>) {
        let mut shared_loads = self.shared_loads();
        if shared_loads
            .get(key)
            .is_some_and(|other| Arc::ptr_eq(other, shared_load))
        {
            shared_loads.remove(key);
        }
    }

    pub(crate) fn hear(&self, notice: &Notice) {
        match notice {
            Notice::LoadEnded { key } => {
                let key = LockName::from_key(key);
                let shared_load = self.shared_loads().get(&key).cloned();
                if let Some(shared_load) = shared_load {
                    shared_load.wake.notify_one();
                }
            }
            Notice::Changed { keys } => self.forget(keys.as_deref()),
            // The client misses notices from here on.
            Notice::Cut(_) => self.forget(None),
            // The client missed the notices meanwhile.
            Notice::Reconnected => {
                self.forget(None);
                let shared_loads: Vec<_> = self.shared_loads().values().cloned().collect();
                for shared_load in shared_loads {
                    shared_load.wake.notify_one();
                }
            }
            _ => {}
        }
    }

    /// Waits until no handle is left, or the client is being closed.
    pub(super) async fn leaving(&self) {
        let mut leaving = self.leaving.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(leaving.wait_for(|leaving| *leaving).await);
    }

    pub(super) fn unexpected(&self, reply: &Reply) -> Refusal {
        let store = self.engine.store.label();
        Refusal::Store(StoreError::new(
            store,
            StoreErrorKind::Protocol,
            format!("{reply:?}"),
        ))
    }

    pub(crate) fn shared_loads(&self) -> MutexGuard<'_, HashMap<LockName, Arc<SharedLoad>>> {
        // A map is changed as a whole or not at all, whatever panics.
        self.shared_loads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

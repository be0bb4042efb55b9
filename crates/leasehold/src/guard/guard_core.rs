//! What a guard knows: the shared loads under way, the values kept here, and the store to ask. Must never begin a shared load by itself.

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

/// What all handles and shared loads of a guard share.
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

    /// What is kept here of these entries is over; `None` is all of them.
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

    /// The entries of the store. Only one that a test plays has none.
    pub(super) fn entries(&self) -> Option<&dyn Entries> {
        self.entries.as_deref()
    }

    /// What is stored, without loading anything.
    pub(crate) async fn look<'a>(&'a self, keys: &'a [LockName]) -> Result<Looked, Refusal> {
        self.persist(|entries| entries.look(keys)).await
    }

    /// Makes what is stored stale, or removes it; so is what loads under way bring.
    pub(crate) async fn invalidate(&self, key: &LockName, remove: bool) -> Result<(), Refusal> {
        let step = Step::Invalidate { remove };
        let taken = self.take(key, &step).await;
        // Whether or not it was confirmed, and before it is heard from the store.
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
            return Err(Refusal::Store(StoreError::closed()));
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 1;
        loop {
            match request(entries).await {
                Ok(answer) => return Ok(answer),
                // One that was waited for in full has been tried for long enough.
                Err(error)
                    if tries == TRIES
                        || !error.kind.is_transient()
                        || error.kind == StoreErrorKind::TimedOut =>
                {
                    return Err(Refusal::Store(error));
                }
                // The first time at once: what fails most is a connection, and there may be another by now.
                Err(_) if tries == 1 => {}
                Err(_) => self.engine.clock.sleep(backoff.pause()).await,
            }
            tries += 1;
        }
    }

    /// A shared load is over: whoever asks from now on begins another.
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
            // What is said from here on is not heard.
            Notice::Cut(_) => self.forget(None),
            // What was said meanwhile was not heard.
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

    /// Waits until nobody is left to wait for.
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

//! The door for `leasehold-cache`: the cache entries of a client's store, and the client's clock, tasks and subscriber. It is not part of the
//! stable API.

#[cfg(feature = "simulation")]
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::cache::{Reply, Step, Token};
use leasehold_core::{Invalid, LockName, Naming};
use tracing::{Level, Span};

use crate::backoff::{self, Backoff};
use crate::client::Client;
use crate::clock::Clock;
pub use crate::error::within;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::Engine;
use crate::runtime;
pub use crate::runtime::{JobEnd, LoaderRuntime};
pub use crate::store::entries::{EntryListener, EntryStore, Looked, Taken};
use crate::telemetry::{self, ShieldedSpan};

/// How often a request is made before its failure counts, and the pauses between.
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The cache entries of a client's store, and what a cache needs of the client. It does not keep the client's thread: hold a [`Client`] or
/// a running task as well. Cheap to clone.
#[derive(Clone)]
pub struct Entries {
    engine: Arc<Engine>,
    store: Option<Arc<dyn EntryStore>>,
    naming: Naming,
}

impl Client {
    /// The door to the cache entries of this client's store.
    #[doc(hidden)]
    pub fn entries(&self) -> Entries {
        Entries {
            engine: Arc::clone(&self.engine),
            store: self.engine.store.clone().entries(),
            naming: self.entry_naming.clone(),
        }
    }
}

impl Entries {
    /// The key of an entry, within the namespace of the client. A key template is for locks only.
    ///
    /// # Errors
    /// [`Invalid`] for a key that is not allowed.
    pub fn key(&self, key: &str) -> Result<LockName, Invalid> {
        let name = self.naming.name(key);
        name.map_err(|refused| Invalid {
            what: "cache key",
            ..refused
        })
    }

    /// Reads the values of these keys; see [`EntryStore::look`]. Reads again if the store gave no verdict.
    ///
    /// # Errors
    /// If the store gives no verdict, or keeps no entries.
    pub async fn look(&self, keys: &[LockName], watch: bool) -> Result<Looked, StoreError> {
        self.insist(|store| store.look(keys, watch)).await
    }

    /// Takes a step, and again if the store gave no verdict. All listeners of the client hear of an invalidation before this returns.
    ///
    /// # Errors
    /// If the store gives no verdict, or keeps no entries. The step may have been taken.
    pub async fn take(&self, key: &LockName, step: &Step) -> Result<Taken, StoreError> {
        let taken = self.insist(|store| store.take(key, step)).await;
        if matches!(step, Step::Invalidate { .. }) {
            // Also if it was not confirmed, and before the store's notice arrives.
            self.engine.entry_listeners.changed(key);
        }
        taken
    }

    async fn insist<'a, T>(
        &'a self,
        request: impl Fn(&'a dyn EntryStore) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(store) = self.store.as_deref() else {
            let why = "it keeps no cache entries: use one server for them";
            let (label, kind) = (self.engine.store.label(), StoreErrorKind::Misconfigured);
            return Err(StoreError::new(label, kind, why));
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 1;
        loop {
            match self.engine.telemetry.answered(request(store).await) {
                Ok(answer) => return Ok(answer),
                // A request that has timed out has been tried for long enough.
                Err(error)
                    if tries == TRIES
                        || !error.kind.is_transient()
                        || error.kind == StoreErrorKind::TimedOut =>
                {
                    return Err(error);
                }
                // The first retry is immediate: usually a connection has failed, and there may be a new one.
                Err(_) if tries == 1 => {}
                Err(_) => self.engine.clock.sleep(backoff.pause()).await,
            }
            tries += 1;
        }
    }

    /// The error for a reply that does not belong to the step.
    pub fn unexpected(&self, reply: &Reply) -> StoreError {
        let said = format!("{reply:?}");
        StoreError::new(self.engine.store.label(), StoreErrorKind::Protocol, said)
    }

    /// The identity of a new load.
    pub fn token(&self) -> Token {
        Token(self.engine.identity.bits())
    }

    /// Tells `listener` of changes of the entries, for as long as it lives.
    pub fn listen(&self, listener: Weak<dyn EntryListener>) {
        self.engine.entry_listeners.add(listener);
    }

    /// The clock of the client.
    pub fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// Starts a task on the client's thread. [`Client::close`] waits for it, and the drop of the client's last object.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.tasks.spawn(task);
    }

    /// Runs work of a caller on the caller's runtime; without one, on that of the client. It ends when this future is dropped.
    pub async fn run_on<T: Send + 'static>(
        &self,
        caller: &LoaderRuntime,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JobEnd<T> {
        self.engine.tasks.run_on(caller, work).await
    }

    /// Polls `work` on the caller's thread, with the timers of the client.
    ///
    /// # Errors
    /// If the client is closed.
    pub async fn with_timers<F: Future>(&self, work: F) -> Result<F::Output, StoreError> {
        match self.closed() {
            Some(closed) => Err(closed),
            None => Ok(self.engine.tasks.with_timers(work).await),
        }
    }

    /// The error of each further request, if the client is closed.
    pub fn closed(&self) -> Option<StoreError> {
        self.engine.is_closed().then(StoreError::closed)
    }

    /// Waits until the client is being closed.
    pub async fn closing(&self) -> StoreError {
        self.engine.closing().await
    }

    /// Opens a span of the client's `tracing` subscriber.
    pub fn span(&self, open: impl FnOnce() -> Span) -> SharedSpan {
        SharedSpan(Arc::new(self.engine.telemetry.span(open)))
    }

    /// Emits an event to the client's `tracing` subscriber, if it wants this level.
    pub fn tell(&self, level: Level, say: impl FnOnce()) {
        self.engine.telemetry.tell(level, say);
    }

    /// The labels of the client's names in `metrics`. The last one is for all names that were not declared.
    #[cfg(feature = "metrics")]
    pub fn labels(&self) -> &[Option<String>] {
        &self.engine.telemetry.labels().all
    }

    /// The place of the label of `key` in [`Entries::labels`].
    #[cfg(feature = "metrics")]
    pub fn label_of(&self, key: &LockName) -> usize {
        self.engine.telemetry.labels().of(Some(key.as_str()))
    }

    /// Ends with the client, for tests.
    #[cfg(feature = "simulation")]
    pub fn life(&self) -> Weak<dyn Any + Send + Sync> {
        let engine: Weak<Engine> = Arc::downgrade(&self.engine);
        engine
    }

    /// This door with another store behind it, for tests.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn over(mut self, other: impl FnOnce(Arc<dyn EntryStore>) -> Arc<dyn EntryStore>) -> Self {
        self.store = self.store.map(other);
        self
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

/// A span that outlives its creator. Its last drop may call the subscriber, whose panic is contained.
#[derive(Debug, Clone)]
pub struct SharedSpan(Arc<ShieldedSpan>);

impl Deref for SharedSpan {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.0
    }
}

/// Calls a subscriber or a recorder of the program. `None` if it panicked.
pub fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    telemetry::shielded(call)
}

/// `duration` plus a random part of up to a tenth, so that waiters do not ask at the same time.
pub fn jittered(duration: Duration) -> Duration {
    backoff::jittered(duration)
}

/// A random number from 0 to 1, for jitter.
pub fn random() -> f64 {
    backoff::random()
}

/// Starts a named thread for blocking work of a caller.
///
/// # Errors
/// If the system refuses a thread.
pub fn thread(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    runtime::thread(name, work)
}

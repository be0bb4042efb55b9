//! What all cache handles of a client share: reading, and at most one flight an entry. Must never load without the store's
//! leave, and never let a caller's end be the end of a load.
//!
//! # Invariants
//!
//! - **G1** At most one flight an entry is under way in a client, but for loads that have lost their lease: what others of this
//!   process ask meanwhile is answered by it.
//! - **G2** A flight is a task of the client's, its load one of the runtime that asked: neither ends with the caller.
//! - **G3** What a flight found is taken by a caller as fresh only if the store said so after the caller asked, or the load
//!   began after that.
//! - **G4** A flight ends: by a value, a failure, the end of a back-off, or when nobody waits for another's load any more. One whose
//!   loader hangs answers no new caller once its lease is not renewed any more.
//! - **G5** A load that was granted is committed or abandoned, whatever becomes of the loader; what cannot be sent ends with the
//!   lease.
//! - **G6** Who is given a value that was loaded here finds it stored if the store took it, and waits for that for no longer than 100 ms
//!   or its own limit.

mod flight;
#[cfg(test)]
mod judging;
mod layer;
mod load;
mod policy;
mod reading;
mod stage;
mod told;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::cache::{Reply, Step, Value, Version};
use tokio::sync::watch;

use self::flight::{Flight, Pilot};
use self::layer::Layer;
pub(crate) use self::layer::Settings as LayerSettings;
pub(crate) use self::load::{Brought, LoadEnd, Loader, Nest};
pub use self::policy::{MOST_BYTES, Policy};
pub(crate) use self::stage::Failure;
pub use self::stage::Origin;
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::Engine;
use crate::runtime::Home;
use crate::store::entries::{Entries, Looked, Taken};
use crate::store::{Listener, Notice};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::Held;

/// How often a request is made before its failure counts, and the pauses between.
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The guard of a client's entries. When the last handle goes, flights that only wait end; loads go on.
pub(crate) struct Guard(Arc<Inner>);

pub(crate) struct Inner {
    engine: Arc<Engine>,
    flights: Mutex<HashMap<LockName, Arc<Flight>>>,
    layer: Option<Layer>,
    /// No handle is left, or the client is being closed.
    leaving: watch::Sender<bool>,
}

/// A reader, and what it would load with.
pub(crate) struct Request {
    pub(crate) key: LockName,
    pub(crate) policy: Policy,
    pub(crate) loader: Option<Box<dyn Loader>>,
    pub(crate) home: Home,
    /// The loads that the caller is part of.
    pub(crate) nest: Nest,
    /// The span of the caller, which what is loaded for it follows from.
    pub(crate) caller: Held,
    /// Reads a value as the one who asks; `None` if it is of another form.
    pub(crate) decode: fn(&Value) -> Option<Decoded>,
}

/// A value as its readers have it.
pub(crate) type Decoded = Arc<dyn Any + Send + Sync>;

/// What a reader gets.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) value: Decoded,
    pub(crate) age: Duration,
    pub(crate) origin: Origin,
}

/// Why it gets nothing.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    Store(StoreError),
    /// For so long another has been loading, or failing to.
    Busy(Duration),
    /// The load failed, here or elsewhere; nobody tries again for so long.
    Failed(Failure, Duration),
    /// The loader had no value.
    Nothing,
    /// Something else stands under the key, of this Redis type.
    Foreign(String),
    /// What others store cannot be read here.
    Unreadable,
    /// The caller is part of the load of this very entry.
    Nested,
    /// The loader went with its runtime.
    GaveUp,
}

/// The way from a store to the guard of its client.
#[derive(Clone, Default)]
pub(crate) struct Ears(Arc<OnceLock<Weak<Inner>>>);

impl Ears {
    /// Hears what is for the guard, and passes everything on to `next`.
    pub(crate) fn before(&self, next: Listener) -> Listener {
        let ears = self.0.clone();
        Arc::new(move |notice| {
            if let Some(inner) = ears.get().and_then(Weak::upgrade) {
                inner.hear(&notice);
            }
            next(notice);
        })
    }
}

impl Guard {
    pub(crate) fn new(engine: Arc<Engine>, ears: &Ears, layer: Option<LayerSettings>) -> Self {
        let inner = Arc::new(Inner {
            engine,
            flights: Mutex::default(),
            layer: layer.map(Layer::new),
            leaving: watch::Sender::new(false),
        });
        // Set once: ears belong to one guard.
        drop(ears.0.set(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Ends what is under way. Values that were loaded are stored all the same.
    pub(crate) fn close(&self) {
        self.0.leaving.send_replace(true);
    }

    pub(crate) fn inner(&self) -> Arc<Inner> {
        self.0.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
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
        self.tell_invalidated(key, &result);
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
        let Some(entries) = self.engine.store.entries() else {
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

    /// Sees to a newer value in the background, unless that is being done.
    fn refresh(self: &Arc<Self>, request: &mut Request, seen: Version, over: bool) {
        // A client that is closed refreshes nothing.
        if let Ok((_, true)) = self.join(request, seen, over)
            && over
        {
            self.engine.telemetry.refreshes_early(&request.key);
        }
    }

    /// The flight of this entry, and whether it begins with this request, whose loader it then has (G1).
    fn join(
        self: &Arc<Self>,
        request: &mut Request,
        seen: Version,
        over: bool,
    ) -> Result<(Arc<Flight>, bool), Refusal> {
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&request.key) {
            return Ok((flight.clone(), false));
        }
        if *self.leaving.borrow() || self.engine.is_closed() {
            return Err(Refusal::Store(StoreError::closed()));
        }
        let Some(loader) = request.loader.take() else {
            return Err(Refusal::GaveUp);
        };
        let flight = Arc::new(Flight::default());
        flights.insert(request.key.clone(), flight.clone());
        drop(flights);
        let pilot = Pilot::new(self.clone(), flight.clone(), request, (seen, over));
        self.engine.tasks.spawn(pilot.fly(loader));
        Ok((flight, true))
    }

    /// A flight is over: whoever asks from now on begins another.
    fn land(&self, key: &LockName, flight: &Arc<Flight>) {
        let mut flights = self.flights();
        if flights
            .get(key)
            .is_some_and(|other| Arc::ptr_eq(other, flight))
        {
            flights.remove(key);
        }
    }

    pub(crate) fn hear(&self, notice: &Notice) {
        match notice {
            Notice::LoadEnded { key } => {
                let key = LockName::from_key(key);
                let flight = self.flights().get(&key).cloned();
                if let Some(flight) = flight {
                    flight.wake.notify_one();
                }
            }
            Notice::Changed { keys } => self.forget(keys.as_deref()),
            // What is said from here on is not heard.
            Notice::Cut(_) => self.forget(None),
            // What was said meanwhile was not heard.
            Notice::Reconnected => {
                self.forget(None);
                let flights: Vec<_> = self.flights().values().cloned().collect();
                for flight in flights {
                    flight.wake.notify_one();
                }
            }
            _ => {}
        }
    }

    /// Waits until nobody is left to wait for.
    async fn leaving(&self) {
        let mut leaving = self.leaving.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(leaving.wait_for(|leaving| *leaving).await);
    }

    fn unexpected(&self, reply: &Reply) -> Refusal {
        let store = self.engine.store.label();
        Refusal::Store(StoreError::new(
            store,
            StoreErrorKind::Protocol,
            format!("{reply:?}"),
        ))
    }

    pub(crate) fn flights(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Flight>>> {
        // A map is changed as a whole or not at all, whatever panics.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

//! What all cache handles of a client share: reading, and at most one shared load an entry. Must never load without the store's
//! leave, and never let a caller's end be the end of a load.
//!
//! # Invariants
//!
//! - **G1** At most one shared load an entry is under way in a client, but for loads that have lost their lease: what others of this
//!   process ask meanwhile is answered by it.
//! - **G2** A shared load is a task of the client's, its load one of the runtime that asked: neither ends with the caller.
//! - **G3** What a shared load found is taken by a caller as fresh only if the store said so after the caller asked, or the load
//!   began after that.
//! - **G4** A shared load ends: by a value, a failure, the end of a back-off, or when nobody waits for another's load any more. One whose
//!   loader hangs answers no new caller once its lease is not renewed any more.
//! - **G5** A load that was granted is committed or abandoned, whatever becomes of the loader; what cannot be sent ends with the
//!   lease.
//! - **G6** Who is given a value that was loaded here finds it stored if the store took it, and waits for that for no longer than 100 ms
//!   or its own limit.

mod answer;
mod attempt;
mod granted;
mod guard_core;
mod load_scope;
mod load_task;
mod loader;
mod local_cache;
mod policy;
mod reader;
mod reporting;
mod request;
mod shared_load;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock, Weak};

pub use self::answer::Origin;
pub(crate) use self::answer::{Answer, Decoded, Failure, Refusal};
use self::guard_core::GuardCore;
pub(crate) use self::load_scope::LoadScope;
pub(crate) use self::loader::{LoadResult, LoadedValue, Loader};
use self::local_cache::LocalCache;
pub(crate) use self::local_cache::Settings as LocalCacheSettings;
pub use self::policy::{MOST_BYTES, Policy};
pub(crate) use self::request::Request;
use crate::lease::Engine;
use crate::store::Listener;
use crate::store::entries::Entries;
use crate::telemetry::Held;

/// The guard of a client's entries. When the last handle goes, shared loads that only wait end; loads go on.
pub(crate) struct Guard(Arc<GuardCore>);

/// The way from a store to the guard of its client.
#[derive(Clone, Default)]
pub(crate) struct GuardSink(Arc<OnceLock<Weak<GuardCore>>>);

impl GuardSink {
    /// Hears what is for the guard, and passes everything on to `next`.
    pub(crate) fn before(&self, next: Listener) -> Listener {
        let guard_sink = self.0.clone();
        Arc::new(move |notice| {
            if let Some(inner) = guard_sink.get().and_then(Weak::upgrade) {
                inner.hear(&notice);
            }
            next(notice);
        })
    }
}

impl Guard {
    pub(crate) fn new(
        engine: Arc<Engine>,
        entries: Option<Arc<dyn Entries>>,
        guard_sink: &GuardSink,
        layer: Option<LocalCacheSettings>,
    ) -> Self {
        let inner = Arc::new(GuardCore::new(engine, entries, layer.map(LocalCache::new)));
        // Set once: ears belong to one guard.
        drop(guard_sink.0.set(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Ends what is under way. Values that were loaded are stored all the same.
    pub(crate) fn close(&self) {
        self.0.leaving.send_replace(true);
    }

    pub(crate) fn inner(&self) -> Arc<GuardCore> {
        self.0.clone()
    }

    /// The span of whoever calls.
    pub(crate) fn caller(&self) -> Held {
        self.0.engine.telemetry.caller()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
    }
}

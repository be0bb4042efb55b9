//! The part of the cache that all handles of a client share: reads, and at most one load of an entry at a time.
//!
//! # Invariants
//!
//! - **G1** A client has at most one shared load of an entry, apart from loads that have lost their lease. It answers all callers of this
//!   process that ask meanwhile.
//! - **G2** A shared load is a task of the client, and its loader a task of the caller's runtime. Neither ends with the caller.
//! - **G3** A caller takes the result of a shared load as fresh only if the store said so after the caller asked, or if the load
//!   began after that.
//! - **G4** A shared load ends: by a value, a failure, the end of a back-off, or when no caller waits for another client's load any more. A
//!   shared load whose loader hangs answers no new caller once its lease is not renewed any more.
//! - **G5** A granted load is committed or abandoned, however the loader ends. If that request cannot be sent, the lease ends the load.
//! - **G6** A caller that gets a value loaded here finds it stored, if the store accepted it. The caller waits for that for at most 100 ms
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
pub(crate) use self::answer::{Decoded, Failure, ReadAnswer, Refusal};
use self::guard_core::GuardCore;
pub(crate) use self::load_scope::LoadScope;
pub(crate) use self::loader::{LoadResult, LoadedValue, Loader};
use self::local_cache::LocalCache;
pub(crate) use self::local_cache::Settings as LocalCacheSettings;
pub use self::policy::{MOST_BYTES, Policy};
pub(crate) use self::request::ReadRequest;
use crate::lease::Engine;
use crate::store::Listener;
use crate::store::entries::Entries;
use crate::telemetry::Held;

/// The guard of a client's entries. When the last handle goes, shared loads that only wait end; loads go on.
pub(crate) struct Guard(Arc<GuardCore>);

/// Delivers the store's notices to the guard of its client.
#[derive(Clone, Default)]
pub(crate) struct GuardSink(Arc<OnceLock<Weak<GuardCore>>>);

impl GuardSink {
    /// A listener that informs the guard and then calls `next`.
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
        // Set once: a sink belongs to one guard.
        drop(guard_sink.0.set(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Ends the shared loads. Loaded values are still stored.
    pub(crate) fn close(&self) {
        self.0.leaving.send_replace(true);
    }

    pub(crate) fn inner(&self) -> Arc<GuardCore> {
        self.0.clone()
    }

    /// The span of the caller.
    pub(crate) fn caller(&self) -> Held {
        self.0.engine.telemetry.caller()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
    }
}

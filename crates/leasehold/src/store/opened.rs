//! An open store, with the optional interfaces beside its locks.

use std::sync::Arc;

#[cfg(feature = "timestamp")]
use futures_util::future::BoxFuture;
#[cfg(feature = "timestamp")]
use leasehold_core::{LockName, timestamp};

use super::contract::Store;
#[cfg(feature = "entries")]
use super::entries::EntryStore;
#[cfg(feature = "timestamp")]
use crate::error::StoreError;

/// A store and its optional interfaces.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// Cache entries. A quorum has none.
    #[cfg(feature = "entries")]
    pub(crate) entries: Option<Arc<dyn EntryStore>>,
    /// Keys of the timestamp protocol. Only servers that other programs can reach have them.
    #[cfg(feature = "timestamp")]
    pub(crate) timestamps: Option<Arc<dyn Timestamps>>,
}

impl Opened {
    /// A store with locks only.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            #[cfg(feature = "entries")]
            entries: None,
            #[cfg(feature = "timestamp")]
            timestamps: None,
        }
    }

    /// A store with locks and, if this build has them, cache entries.
    #[cfg(feature = "entries")]
    pub(crate) fn whole<T: Store + EntryStore>(store: T) -> Self {
        let store = Arc::new(store);
        Self {
            entries: Some(store.clone()),
            ..Self::new(store)
        }
    }

    /// A store with locks and, if this build has them, cache entries.
    #[cfg(not(feature = "entries"))]
    pub(crate) fn whole<T: Store>(store: T) -> Self {
        Self::new(Arc::new(store))
    }
}

/// The interface of a store for keys of the timestamp protocol, with steps of `leasehold_core::timestamp`.
#[cfg(feature = "timestamp")]
pub(crate) trait Timestamps: Send + Sync {
    /// Executes a step. To be awaited on the client's own thread. Not safe to repeat.
    fn take<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> BoxFuture<'a, Result<timestamp::Reply, StoreError>>;
}

/// A step of the timestamp protocol, and how to execute it.
#[cfg(feature = "timestamp")]
#[derive(Debug, Clone)]
pub(crate) struct TimestampRequest {
    pub(crate) unit: timestamp::Unit,
    pub(crate) step: timestamp::Step,
    /// Execute it as one script. Otherwise, for a server without scripts, as the commands of the recipe.
    pub(crate) by_script: bool,
    /// No other step has to follow within the TTL, so that this one may take the longest time limit.
    pub(crate) is_last: bool,
}

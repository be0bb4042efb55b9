//! A store that was opened, and the doors beside its locks that not every one has. Must never do I/O.

use std::sync::Arc;

use super::contract::Store;
#[cfg(feature = "cache")]
use super::entries::Entries;
#[cfg(feature = "timestamp")]
use super::timestamps::Timestamps;

/// A store, and what else it keeps.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// Its cache entries. Only stores that a test plays have none.
    #[cfg(feature = "cache")]
    pub(crate) entries: Option<Arc<dyn Entries>>,
    /// Keys of the timestamp protocol, which only servers have that other programs reach too.
    #[cfg(feature = "timestamp")]
    pub(crate) timestamps: Option<Arc<dyn Timestamps>>,
}

impl Opened {
    /// A store that keeps locks only.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            #[cfg(feature = "cache")]
            entries: None,
            #[cfg(feature = "timestamp")]
            timestamps: None,
        }
    }

    /// A store that keeps locks and, where this build has them, cache entries.
    #[cfg(feature = "cache")]
    pub(crate) fn whole<T: Store + Entries>(store: T) -> Self {
        let store = Arc::new(store);
        Self {
            entries: Some(store.clone()),
            ..Self::new(store)
        }
    }

    /// A store that keeps locks and, where this build has them, cache entries.
    #[cfg(not(feature = "cache"))]
    pub(crate) fn whole<T: Store>(store: T) -> Self {
        Self::new(Arc::new(store))
    }
}

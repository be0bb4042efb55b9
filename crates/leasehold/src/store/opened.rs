//! An open store, with the optional interfaces beside its locks.

use std::sync::Arc;

use super::contract::Store;
#[cfg(feature = "entries")]
use super::entries::EntryStore;
#[cfg(feature = "timestamp")]
use super::timestamps::Timestamps;

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

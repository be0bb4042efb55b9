//! What a reader of an entry is given, or why it is given nothing. Must never hold how that came about.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::cache::Standing;

use crate::error::StoreError;

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was stored, and fresh.
    Fresh,
    /// It was stored, and is served although it is stale.
    Stale,
    /// This call loaded it.
    Loaded,
    /// Another call loaded it, here or elsewhere, and this one waited.
    Waited,
}

impl From<Standing> for Origin {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Fresh => Self::Fresh,
            Standing::Stale => Self::Stale,
        }
    }
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

/// A failed load.
#[derive(Clone)]
pub(crate) struct Failure {
    /// What the loader said.
    pub(crate) text: String,
    /// The error itself, where it happened in this process.
    pub(crate) source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

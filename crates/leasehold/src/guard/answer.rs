//! The result of reading an entry.

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
    /// The stored value, fresh.
    Fresh,
    /// The stored value, stale.
    Stale,
    /// This call loaded it.
    Loaded,
    /// Another call in this or another process loaded it, and this call waited.
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

/// A decoded value.
pub(crate) type Decoded = Arc<dyn Any + Send + Sync>;

/// The value for a reader.
#[derive(Debug, Clone)]
pub(crate) struct ReadAnswer {
    pub(crate) value: Decoded,
    pub(crate) age: Duration,
    pub(crate) origin: Origin,
}

/// Why a reader gets no value.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    Store(StoreError),
    /// Another caller has been loading, or failing to load, for this long.
    Busy(Duration),
    /// The load failed, in this or another process. No caller retries for this long.
    Failed(Failure, Duration),
    /// The loader had no value.
    Nothing,
    /// The key holds another kind of value, of this Redis type.
    Foreign(String),
    /// The stored value cannot be decoded here.
    Unreadable,
    /// The caller runs inside the load of this entry.
    Nested,
    /// The loader ended with its runtime.
    GaveUp,
}

/// A failed load.
#[derive(Clone)]
pub(crate) struct Failure {
    /// The text of the loader's error.
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

//! The interface of a store for cache entries. It executes steps of `leasehold_core::cache` atomically; the rules are
//! core's.

use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::cache::{Reply, Step, Value};

use crate::error::StoreError;

/// A store of cache entries. Its futures need the client's timers.
pub(crate) trait Entries: Send + Sync {
    /// Reads the values of these keys, in their order. A key without a valid entry has none. Changes nothing.
    fn look<'a>(&'a self, keys: &'a [LockName]) -> BoxFuture<'a, Result<Looked, StoreError>>;

    /// Executes one step atomically, or reports why it could not. Safe to repeat.
    fn take<'a>(
        &'a self,
        key: &'a LockName,
        step: &'a Step,
    ) -> BoxFuture<'a, Result<Taken, StoreError>>;
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) values: Vec<Option<Value>>,
    /// The time on the store's expiry clock, in milliseconds: ahead of it by one round trip at most, and behind it by
    /// drift between two readings at most.
    pub(crate) now_ms: u64,
}

/// The reply to a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) reply: Reply,
    /// The time of the step on the store's expiry clock, in milliseconds.
    pub(crate) now_ms: u64,
}

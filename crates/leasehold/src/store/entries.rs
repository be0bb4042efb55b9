//! The cache entries of a store. It carries out steps of `leasehold_core::cache` atomically; it must never decide one by itself.

use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::cache::{Reply, Step, Value};

use crate::error::StoreError;

/// Where cache entries live. Its futures are to be awaited with the client's timers.
pub(crate) trait Entries: Send + Sync {
    /// What is stored under these keys, in their order; what is no entry counts as nothing. Changes nothing.
    fn look<'a>(&'a self, keys: &'a [LockName]) -> BoxFuture<'a, Result<Looked, StoreError>>;

    /// Carries out one step atomically, or says why it gave no verdict. Safe to repeat.
    fn take<'a>(
        &'a self,
        key: &'a LockName,
        step: &'a Step,
    ) -> BoxFuture<'a, Result<Taken, StoreError>>;
}

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) values: Vec<Option<Value>>,
    /// The time on the store's expiry clock, in milliseconds; at most the time of a round trip ahead of it, never behind by
    /// more than the clocks drift apart between two readings.
    pub(crate) now_ms: u64,
}

/// What a step was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) reply: Reply,
    /// When, on the store's expiry clock, in milliseconds.
    pub(crate) now_ms: u64,
}

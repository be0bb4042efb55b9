//! What a caller loads a value with, and what that may come back with. Must never be asked twice.

use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::cache::{Body, Format};

use super::answer::Failure;

/// What loads a value, once.
pub(crate) trait Loader: Send {
    /// Another loads; this one may never be asked, or later.
    fn passed_over(&mut self) {}

    /// Loads. Runs where the caller does, in a task of its own.
    fn load(self: Box<Self>) -> BoxFuture<'static, LoadResult>;
}

/// What a loader came back with.
#[derive(Debug, Clone)]
pub(crate) enum LoadResult {
    Value(LoadedValue),
    /// There is none, and nothing is stored.
    Nothing,
    Failed(Failure),
}

/// A value, written down, and how long it is to be kept.
#[derive(Debug, Clone)]
pub(crate) struct LoadedValue {
    pub(crate) body: Body,
    pub(crate) format: Format,
    pub(crate) fresh_for: Duration,
    pub(crate) stale_for: Duration,
}

//! A caller's loader and its result.

use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::cache::{Body, Format};

use super::answer::Failure;

/// Loads a value, once.
pub(crate) trait Loader: Send {
    /// Another caller loads. This loader may run later or never.
    fn passed_over(&mut self) {}

    /// Loads the value, in a new task on the caller's runtime.
    fn load(self: Box<Self>) -> BoxFuture<'static, LoadResult>;
}

/// The result of a loader.
#[derive(Debug, Clone)]
pub(crate) enum LoadResult {
    Value(LoadedValue),
    /// There is no value, and nothing is stored.
    Nothing,
    Failed(Failure),
}

/// An encoded value and its lifetime.
#[derive(Debug, Clone)]
pub(crate) struct LoadedValue {
    pub(crate) body: Body,
    pub(crate) format: Format,
    pub(crate) fresh_for: Duration,
    pub(crate) stale_for: Duration,
}

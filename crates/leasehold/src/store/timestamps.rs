//! The interface of a store for keys of the timestamp protocol, with steps of `leasehold_core::timestamp`.

use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::timestamp::{Reply, Step, Unit};

use crate::error::StoreError;

/// A store of such keys.
pub(crate) trait Timestamps: Send + Sync {
    /// Executes a step. To be awaited on the client's own thread. Not safe to repeat.
    fn take<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> BoxFuture<'a, Result<Reply, StoreError>>;
}

/// A step, and how to execute it.
#[derive(Debug, Clone)]
pub(crate) struct TimestampRequest {
    pub(crate) unit: Unit,
    pub(crate) step: Step,
    /// Execute it as one script. Otherwise, for a server without scripts, as the commands of the recipe.
    pub(crate) by_script: bool,
    /// No other step has to follow within the TTL, so that this one may take the longest time limit.
    pub(crate) is_last: bool,
}

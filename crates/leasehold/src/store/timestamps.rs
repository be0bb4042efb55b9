//! The keys of the timestamp protocol. A store carries out steps of `leasehold_core::timestamp`; it must never decide one by itself.

use futures_util::future::BoxFuture;
use leasehold_core::LockName;
use leasehold_core::timestamp::{Reply, Step, Unit};

use crate::error::StoreError;

/// Where keys of the protocol live.
pub(crate) trait Timestamps: Send + Sync {
    /// Takes a step. To be awaited on the client's own thread. Not safe to repeat.
    fn take<'a>(
        &'a self,
        name: &'a LockName,
        ask: &'a TimestampRequest,
    ) -> BoxFuture<'a, Result<Reply, StoreError>>;
}

/// A step, and how it is to be taken.
#[derive(Debug, Clone)]
pub(crate) struct TimestampRequest {
    pub(crate) unit: Unit,
    pub(crate) step: Step,
    /// As one script, or else, for a server that runs none, as the commands of the recipe.
    pub(crate) by_script: bool,
    /// No other has to follow it within its TTL, so that it may take as long as any request.
    pub(crate) is_last: bool,
}

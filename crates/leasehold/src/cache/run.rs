//! Runs the work of a call with the client's timers, unless the client is closed.

use leasehold_core::LockName;

use super::error::Error;
use crate::client::Client;
use crate::error::StoreError;
use crate::guard::Refusal;

/// Runs `work` for the entry `key`.
pub(super) async fn run<T>(
    client: &Client,
    key: &LockName,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Error> {
    let engine = &client.engine;
    if engine.is_closed() {
        return Err(StoreError::closed().into());
    }
    let outcome = engine.tasks.with_timers(work).await;
    outcome.map_err(|refusal| Error::of(key.as_str(), refusal))
}

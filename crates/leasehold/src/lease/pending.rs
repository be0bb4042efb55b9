//! An acquisition, as the future that its caller polls.
//!
//! # Invariants
//!
//! - **W2** Either the caller receives the lease, or the lease is released. At each moment one of the two is certain: the engine or the
//!   dropped future releases a lease that cannot be delivered.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use leasehold_core::LockName;
use tokio::sync::oneshot;

use super::engine::EngineHandle;
use super::handle::Lease;
use super::waiter::{AcquireOutcome, AcquireRequest};
use crate::error::{Error, StoreError};

/// An acquisition under way. Dropping it ends the acquisition and leaves nothing behind.
#[must_use = "dropping it ends the acquisition"]
pub(crate) struct Pending {
    engine: EngineHandle,
    name: LockName,
    id: u64,
    answered: oneshot::Receiver<AcquireOutcome>,
    over: bool,
}

impl Pending {
    /// Begins an acquisition.
    pub(crate) fn begin(engine: &EngineHandle, request: AcquireRequest) -> Self {
        let (answer, answered) = oneshot::channel();
        let name = request.name.clone();
        Self {
            id: engine.ask(request, answer),
            engine: engine.clone(),
            name,
            answered,
            over: false,
        }
    }
}

impl Future for Pending {
    type Output = Result<Option<Lease>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.answered).poll(context));
        self.over = true;
        let outcome = outcome.unwrap_or_else(|_| Err(StoreError::closed().into()));
        let lease = |hold| Lease::new(hold, self.engine.clone());
        Poll::Ready(outcome.map(|held| held.map(lease)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // From here on no lease can be delivered.
        self.answered.close();
        match self.answered.try_recv() {
            Ok(Ok(Some(hold))) => self.engine.release(&hold, None, None),
            Ok(_) => {}
            Err(_) => self.engine.leave(&self.name, self.id),
        }
    }
}

//! One load that all callers of an entry share, seen from its waiters.

use std::sync::PoisonError;

use tokio::sync::{Notify, watch};

use super::stage::{Demand, LoadStage, StaleValue, WaitResult};
use crate::clock::Moment;
use crate::sync::Mutex;

/// A shared load, seen from its waiters.
#[derive(Debug, Default)]
pub(crate) struct SharedLoad {
    stage: watch::Sender<LoadStage>,
    /// The last stale value that was found.
    stale: Mutex<Option<StaleValue>>,
    /// Ask again.
    pub(super) wake: Notify,
}

impl SharedLoad {
    /// Waits for a stage that answers the caller.
    pub(super) async fn wait(&self, want: &Demand) -> WaitResult {
        let mut stage = self.stage.subscribe();
        let settled = stage.wait_for(|stage| want.evaluate(stage).is_some()).await;
        // An error would mean that the sender, and so `self`, is gone.
        settled
            .ok()
            .and_then(|stage| want.evaluate(&stage))
            .unwrap_or(WaitResult::Again)
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        let mut stage = self.stage.subscribe();
        drop(
            stage
                .wait_for(|stage| matches!(stage, LoadStage::Ended(_)))
                .await,
        );
    }

    pub(super) fn tell(&self, stage: LoadStage) {
        self.stage.send_replace(stage);
    }

    /// A stale value that was found after `asked`.
    pub(super) fn stale(&self, asked: Moment) -> Option<StaleValue> {
        let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.clone().filter(|stale| stale.sent >= asked)
    }

    pub(super) fn show(&self, stale: StaleValue) {
        let mut last = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(stale.clone());
        drop(last);
        self.tell(LoadStage::Stale(stale));
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.stage.receiver_count() > 0
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.stage.borrow(), LoadStage::Ended(_))
    }
}

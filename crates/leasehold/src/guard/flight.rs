//! An attempt to have a fresh value, as those see it who wait for it. Must never forget how it ended.

use std::sync::PoisonError;

use tokio::sync::{Notify, watch};

use super::stage::{Judged, Shown, Stage, Want};
use crate::clock::Moment;
use crate::sync::Mutex;

/// A flight, as those see it who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    stage: watch::Sender<Stage>,
    /// The last stale value that came to light.
    shown: Mutex<Option<Shown>>,
    /// Ask again.
    pub(super) wake: Notify,
}

impl Flight {
    /// Waits for a stage that means something to the caller.
    pub(super) async fn wait(&self, want: &Want) -> Judged {
        let mut stage = self.stage.subscribe();
        let settled = stage.wait_for(|stage| want.judge(stage).is_some()).await;
        // An error would mean that the sender, and so `self`, is gone.
        settled
            .ok()
            .and_then(|stage| want.judge(&stage))
            .unwrap_or(Judged::Again)
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        let mut stage = self.stage.subscribe();
        drop(
            stage
                .wait_for(|stage| matches!(stage, Stage::Ended(_)))
                .await,
        );
    }

    pub(super) fn tell(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// A stale value that came to light after the question.
    pub(super) fn shown(&self, asked: Moment) -> Option<Shown> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clone().filter(|shown| shown.sent >= asked)
    }

    pub(super) fn show(&self, shown: Shown) {
        let mut last = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(shown.clone());
        drop(last);
        self.tell(Stage::Stale(shown));
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.stage.receiver_count() > 0
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Ended(_))
    }
}

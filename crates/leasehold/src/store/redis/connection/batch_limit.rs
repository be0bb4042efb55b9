//! Limits how many batches are in flight at once.

use std::time::Duration;

use crate::clock::Moment;

/// Batches in flight at once. The next batches fill up meanwhile.
const BATCHES: usize = 4;

/// If replies come faster than this, only one batch is in flight: the next one fills up meanwhile.
const AT_ONCE: Duration = Duration::from_micros(100);

/// Measures how fast replies come.
#[derive(Default)]
pub(super) struct BatchLimit {
    sent: Option<Moment>,
    is_fast: bool,
}

impl BatchLimit {
    pub(super) fn batches(&self) -> usize {
        if self.is_fast { 1 } else { BATCHES }
    }

    /// A batch was sent while no other batch was in flight.
    pub(super) const fn sent(&mut self, now: Moment) {
        self.sent = Some(now);
    }

    pub(super) fn answered(&mut self, now: Moment) {
        if let Some(sent) = self.sent.take() {
            self.is_fast = now.since(sent) <= AT_ONCE;
        }
    }
}

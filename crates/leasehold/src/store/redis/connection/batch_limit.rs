//! How many batches are on their way at once. Must never decide what is in them.

use std::time::Duration;

use crate::clock::Moment;

/// Batches under way at once: the next ones fill while these are on their way.
const BATCHES: usize = 4;

/// An answer that comes within so long is not worth a second batch on its way: the next one fills meanwhile.
const AT_ONCE: Duration = Duration::from_micros(100);

/// How soon answers come.
#[derive(Default)]
pub(super) struct BatchLimit {
    sent: Option<Moment>,
    is_fast: bool,
}

impl BatchLimit {
    pub(super) fn batches(&self) -> usize {
        if self.is_fast { 1 } else { BATCHES }
    }

    /// Something was sent, and nothing else is under way.
    pub(super) const fn sent(&mut self, now: Moment) {
        self.sent = Some(now);
    }

    pub(super) fn answered(&mut self, now: Moment) {
        if let Some(sent) = self.sent.take() {
            self.is_fast = now.since(sent) <= AT_ONCE;
        }
    }
}

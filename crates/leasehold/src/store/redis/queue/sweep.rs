//! Enforces the time limits of steps.

use std::time::Duration;

use super::contents::{ConnectionState, Contents, PendingReply};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Done;

/// The shortest pause between two sweeps.
const LEAST: Duration = Duration::from_millis(2);

/// The result of a sweep.
#[must_use = "steps whose time limit has passed have to be answered"]
pub(in crate::store::redis) struct SweepResult {
    late: Vec<(Done, StoreError)>,
    /// When to sweep next, unless woken before.
    pub(in crate::store::redis) next: Option<Moment>,
}

impl SweepResult {
    /// Answers the steps whose time limit has passed.
    pub(in crate::store::redis) fn answer(self) {
        for (done, error) in self.late {
            done.answer(Err(error));
        }
    }
}

impl Contents {
    /// Ends the steps whose time limit has passed. `shown` names the server in errors.
    pub(super) fn sweep(&mut self, now: Moment, shown: &str) -> SweepResult {
        let mut late = Vec::new();
        if self.sweep_at.is_some_and(|sweep_at| sweep_at <= now) {
            self.sweep_lines(now, shown, &mut late);
        }
        let next = self.sweep_at.map(|next| next.max(now.after(LEAST)));
        SweepResult { late, next }
    }

    fn sweep_lines(&mut self, now: Moment, shown: &str, late: &mut Vec<(Done, StoreError)>) {
        let mut soonest: Option<Moment> = None;
        let mut look = |waiting: &mut PendingReply| {
            let is_late = waiting.until <= now;
            if !is_late {
                soonest = Some(soonest.map_or(waiting.until, |soonest| soonest.min(waiting.until)));
            }
            is_late.then(|| waiting.done.take()).flatten()
        };
        let timed_out = |detail: String| StoreError::new(shown, StoreErrorKind::TimedOut, detail);
        let not_sent = match self.state {
            ConnectionState::Connecting => "still connecting",
            ConnectionState::Up { .. } | ConnectionState::Down(_) => "not sent",
        };
        for queue in &mut self.queues {
            queue.retain_mut(|item| match look(&mut item.waiting) {
                None => true,
                Some(done) => {
                    let limit = item.waiting.limit;
                    late.push((done, timed_out(format!("{not_sent} after {limit:.1?}"))));
                    false
                }
            });
        }
        let batches = self.under_way.values_mut();
        for waiting in batches.flat_map(|(_, waiting)| waiting) {
            if waiting.done.is_some()
                && let Some(done) = look(waiting)
            {
                let limit = waiting.limit;
                late.push((done, timed_out(format!("waited {limit:.1?}")).unknown()));
                self.silent = true;
            }
        }
        self.sweep_at = soonest;
    }
}

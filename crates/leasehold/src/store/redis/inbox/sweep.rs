//! Time limits. Must never let a step go unanswered for longer than its limit.

use std::time::Duration;

use super::{Inbox, Inner, State, Waiting};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Done;

/// The shortest pause between two looks.
const LEAST: Duration = Duration::from_millis(2);

/// What time has brought.
#[must_use = "those whose time limit has passed are to be told"]
pub(in crate::store::redis) struct Swept {
    late: Vec<(Done, StoreError)>,
    /// When to look again, if nothing happens before.
    pub(in crate::store::redis) next: Option<Moment>,
}

impl Swept {
    /// Answers those whose time limit has passed.
    pub(in crate::store::redis) fn tell(self) {
        for (done, error) in self.late {
            done.answer(Err(error));
        }
    }
}

impl Inbox {
    /// Looks at the time limits.
    pub(in crate::store::redis) fn sweep(&self, now: Moment) -> Swept {
        let mut late = Vec::new();
        let mut inner = self.lock();
        if inner.sweep_at.is_some_and(|sweep_at| sweep_at <= now) {
            self.sweep_lines(&mut inner, now, &mut late);
        }
        let is_silent = inner.silent;
        let next = inner.sweep_at.map(|next| next.max(now.after(LEAST)));
        drop(inner);
        if is_silent {
            self.bell.notify_one();
        }
        Swept { late, next }
    }

    /// A request that is no step was not answered in time.
    pub(in crate::store::redis) fn is_silent(&self) {
        self.lock().silent = true;
        self.bell.notify_one();
    }

    /// The server said to a request that is no step that it takes no writes.
    pub(in crate::store::redis) fn is_demoted(&self) {
        self.lock().demoted = true;
        self.bell.notify_one();
    }

    fn sweep_lines(&self, inner: &mut Inner, now: Moment, late: &mut Vec<(Done, StoreError)>) {
        let mut soonest: Option<Moment> = None;
        let mut look = |waiting: &mut Waiting| {
            let is_late = waiting.until <= now;
            if !is_late {
                soonest = Some(soonest.map_or(waiting.until, |soonest| soonest.min(waiting.until)));
            }
            is_late.then(|| waiting.done.take()).flatten()
        };
        let timed_out =
            |detail: String| StoreError::new(&self.shown, StoreErrorKind::TimedOut, detail);
        let not_sent = match inner.state {
            State::Dialing => "still connecting",
            State::Up { .. } | State::Down(_) => "not sent",
        };
        for line in &mut inner.lines {
            line.retain_mut(|item| match look(&mut item.waiting) {
                None => true,
                Some(done) => {
                    let limit = item.waiting.limit;
                    late.push((done, timed_out(format!("{not_sent} after {limit:.1?}"))));
                    false
                }
            });
        }
        let batches = inner.under_way.values_mut();
        for waiting in batches.flat_map(|(_, waiting)| waiting) {
            if waiting.done.is_some()
                && let Some(done) = look(waiting)
            {
                let limit = waiting.limit;
                late.push((done, timed_out(format!("waited {limit:.1?}")).unknown()));
                inner.silent = true;
            }
        }
        inner.sweep_at = soonest;
    }
}

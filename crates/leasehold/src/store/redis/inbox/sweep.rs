//! Time limits, and whether the runner still comes when it is called. Must never let a step go unanswered for longer than its
//! limit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Inbox, Inner, State, Waiting};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Done;

/// How often time limits are looked at, and the runner is called, while something is under way.
const SWEEP: Duration = Duration::from_millis(20);

/// How often a runner on an executor that is not ours is called when nothing is, since messages may come for those who wait
/// or hold.
const WATCH: Duration = Duration::from_secs(1);

/// The shortest pause between two looks.
const LEAST: Duration = Duration::from_millis(2);

/// How long a runner may leave a call unanswered before its executor counts as blocked.
const BLOCKED: Duration = Duration::from_millis(50);

/// The same while nothing is under way but what is not sent again: what became of it, nobody would know. No price to pay for a thread that
/// a busy machine lets wait; but what is sent again, as renewals are, does not wait so long.
const BLOCKED_ONCE: Duration = Duration::from_secs(1);

/// What the sweeper has to know from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Something was sent since the last look.
    sent: bool,
    /// The runner was called, though nothing is under way.
    called_idle: bool,
    /// Nobody looks for a while, unless told to.
    sleeps: bool,
    /// When the next look was to be.
    due: Option<Moment>,
}

impl Watch {
    /// Something is about to be sent that has to be answered within `limit`. Whether the sweeper has to be told.
    pub(super) fn begin(&mut self, limit: Duration) -> bool {
        self.sent = true;
        std::mem::take(&mut self.sleeps) || limit < SWEEP
    }
}

/// What time has brought.
#[must_use = "those whose time limit has passed are to be told"]
pub(in crate::store::redis) struct Swept {
    late: Vec<(Done, StoreError)>,
    /// The runner does not come when it is called.
    pub(in crate::store::redis) is_blocked: bool,
    /// When to look again, if nothing happens before.
    pub(in crate::store::redis) pause: Option<Duration>,
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
    /// Looks at the time limits, and calls the runner if something is under way or may come.
    pub(in crate::store::redis) fn sweep(&self, now: Moment) -> Swept {
        let mut late = Vec::new();
        let mut inner = self.lock();
        if inner.soonest.is_some_and(|soonest| soonest <= now) {
            self.sweep_lines(&mut inner, now, &mut late);
        }
        let near = self.near.load(Ordering::SeqCst);
        // Where this look comes late as well, it is the whole process that stood still.
        if inner.watch.due.is_some_and(|due| now.since(due) >= SWEEP) {
            inner.called_at = inner.called_at.map(|_| now);
        }
        let called = inner.called_at.map(|called| now.since(called));
        let has_steps =
            !inner.under_way.is_empty() || inner.lines.iter().any(|line| !line.is_empty());
        let patience = if inner.others.only_once() && !has_steps {
            BLOCKED_ONCE
        } else {
            BLOCKED
        };
        let is_blocked = near && called.is_some_and(|waited| waited >= patience);
        let busy = inner.others.any() || has_steps;
        let sent = std::mem::take(&mut inner.watch.sent);
        let came = std::mem::take(&mut inner.watch.called_idle) && inner.called_at.is_none();
        let (call, pause) = match (busy || sent, near) {
            (true, _) => (busy, Some(SWEEP)),
            (false, true) if came => (false, Some(WATCH)),
            (false, true) => (true, Some(SWEEP)),
            (false, false) => (false, None),
        };
        inner.watch.called_idle = call && !busy;
        inner.watch.sleeps = pause != Some(SWEEP);
        if !call {
            inner.called_at = None;
        } else if inner.called_at.is_none() {
            inner.called_at = Some(now);
        }
        let soonest = inner.soonest.map(|soonest| soonest.since(now).max(LEAST));
        let pause = pause.map(|pause| soonest.map_or(pause, |soonest| pause.min(soonest)));
        inner.watch.due = pause.map(|pause| now.after(pause));
        drop(inner);
        if call {
            self.bell.notify_one();
        }
        Swept {
            late,
            is_blocked,
            pause,
        }
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
        inner.soonest = soonest;
    }
}

//! The progress messages while waiting. Pure: time and holders are arguments. A silent store is reported as
//! silent, not as a busy lock.

use std::time::Duration;

use leasehold::{Fence, HolderView};

use crate::messages::{CLEAR, place, quoted, rewritten, span};
use crate::view::{fence_of, is_same_lease, who};

/// On a terminal the line appears after this time, and is updated at this interval.
const SECOND: Duration = Duration::from_secs(1);

/// In a log an unchanged line is repeated at this interval, as a sign of life.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// A waiter far back in the queue asks about every 15 s. A longer silence means a problem of the store.
const SILENCE: Duration = Duration::from_secs(20);

/// The style of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressStyle {
    /// No messages.
    Quiet,
    /// A line for each change, for logs.
    Lines,
    /// One line that is rewritten, for a terminal.
    Live,
}

/// The last answer of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitState {
    /// The holder of the lock.
    pub(crate) holder: HolderView,
    /// The number of waiters ahead.
    pub(crate) ahead: u32,
    /// The time of the answer, since the wait began.
    pub(crate) at: Duration,
}

/// The progress display and its state.
#[derive(Debug)]
pub(crate) struct Progress {
    style: ProgressStyle,
    /// The name of the lock, escaped and quoted.
    lock: String,
    limit: Option<Duration>,
    seen: Option<WaitState>,
    /// The content of the last line, and its time.
    told: Option<(WaitState, Duration)>,
    /// The width of the terminal, if known.
    columns: Option<usize>,
}

impl Progress {
    pub(crate) fn new(style: ProgressStyle, lock: &str, limit: Option<Duration>) -> Self {
        Self {
            style,
            lock: quoted(lock),
            limit,
            seen: None,
            told: None,
            columns: None,
        }
    }

    /// Of several locks, the messages are about this one now.
    pub(crate) fn turn_to(&mut self, lock: &str) {
        self.lock = quoted(lock);
    }

    /// Takes an answer of the store. Returns the text to write.
    pub(crate) fn see(&mut self, seen: WaitState) -> Option<String> {
        let at = seen.at;
        self.seen = Some(seen);
        self.tick(at)
    }

    /// Takes the current time. Returns the text to write.
    pub(crate) fn tick(&mut self, at: Duration) -> Option<String> {
        let seen = self.seen.as_ref()?;
        let is_live = self.style == ProgressStyle::Live;
        let interval = if is_live { SECOND } else { REPEAT_INTERVAL };
        let is_due = match &self.told {
            Some((told, when)) => {
                let is_same = told.ahead == seen.ahead && is_same_lease(&told.holder, &seen.holder);
                !is_same || at >= *when + interval
            }
            None => !is_live || at >= SECOND,
        };
        if !is_due || self.style == ProgressStyle::Quiet {
            return None;
        }
        let line = self.line(seen, at);
        self.told = Some((seen.clone(), at));
        Some(if is_live {
            rewritten(&line, self.columns)
        } else {
            line + "\n"
        })
    }

    /// Sets the width of the terminal.
    pub(crate) fn resize(&mut self, columns: Option<usize>) {
        self.columns = columns;
    }

    /// The text that clears the progress line at the end.
    pub(crate) fn end(&self) -> &'static str {
        if self.style == ProgressStyle::Live && self.told.is_some() {
            CLEAR
        } else {
            ""
        }
    }

    /// The text for an acquired lock, if a wait was shown before.
    pub(crate) fn got(&self, at: Duration, fence: Option<Fence>) -> Option<String> {
        self.told.as_ref()?;
        let fence = fence.map(|fence| format!(", fence {fence}"));
        let fence = fence.unwrap_or_default();
        Some(format!(
            "{}leasehold: got {} after {:.1}s{fence}\n",
            self.end(),
            self.lock,
            at.as_secs_f64()
        ))
    }

    /// The wait in words that stay true until the next answer of the store: without times.
    pub(crate) fn status(&self) -> String {
        let Some(WaitState { holder, ahead, .. }) = &self.seen else {
            return format!("waiting for {}", self.lock);
        };
        format!(
            "waiting for {}, {}: held by {}{}",
            self.lock,
            place(*ahead),
            who(holder),
            fence_of(holder)
        )
    }

    fn line(&self, seen: &WaitState, at: Duration) -> String {
        let WaitState {
            holder,
            ahead,
            at: seen_at,
        } = seen;
        let since = at.saturating_sub(*seen_at);
        // Assumes that the holder has held the lock since the last answer.
        let held = holder
            .held_for
            .map(|held| format!(" {}", span(held + since)));
        let held = held.unwrap_or_default();
        let silence = if since < SILENCE {
            String::new()
        } else {
            format!("; no answer from the store for {}", span(since))
        };
        let for_ever = match holder.expires_in {
            Some(_) => "",
            None => ", which never expires",
        };
        let limit = self.limit.map(|limit| format!("/{}", span(limit)));
        let limit = limit.unwrap_or_default();
        let clock = if self.style == ProgressStyle::Live {
            // The rest of the lease at the last answer; the holder renews it.
            let left = holder.expires_in.and_then(|left| left.checked_sub(since));
            let lease = left.map(|left| format!("; lease {}", span(left)));
            let lease = lease.unwrap_or_default();
            format!("{lease}  [{}{limit}]", span(at))
        } else {
            String::new()
        };
        format!(
            "leasehold: waiting for {}, {}: held{held} by {}{}{for_ever}{silence}{clock}",
            self.lock,
            place(*ahead),
            who(holder),
            fence_of(holder)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{self, held};

    fn holder(fence: u64) -> HolderView {
        held(fence).holder.unwrap()
    }

    fn foreign() -> HolderView {
        samples::foreign("string", b"d2f1").holder.unwrap()
    }

    fn seen(holder: HolderView, ahead: u32, at: u64) -> WaitState {
        WaitState {
            holder,
            ahead,
            at: Duration::from_secs(at),
        }
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn log_gets_line_at_start_at_each_change_and_every_30_s() {
        let mut progress = Progress::new(ProgressStyle::Lines, "db-migrate", None);
        assert_eq!(
            progress.see(seen(holder(41), 1, 0)).unwrap(),
            "leasehold: waiting for \"db-migrate\", 2nd in line: held 3m12s by deploy@web-3 (pid 4121: migrate.sh), fence 41\n"
        );
        assert_eq!(progress.see(seen(holder(41), 1, 5)), None);
        assert!(
            progress
                .see(seen(holder(41), 0, 6))
                .unwrap()
                .contains("1st in line")
        );
        assert!(
            progress
                .see(seen(holder(105), 0, 7))
                .unwrap()
                .contains("fence 105")
        );
        assert_eq!(progress.tick(at(36)), None);
        // A silent store is shown as silent.
        assert!(progress.tick(at(37)).unwrap().contains("held 3m42s by deploy@web-3 (pid 4121: migrate.sh), fence 105; no answer from the store for 30s"));
        assert_eq!(
            progress
                .got(Duration::from_millis(41_240), Some(Fence::new(169)))
                .unwrap(),
            "leasehold: got \"db-migrate\" after 41.2s, fence 169\n"
        );
    }

    #[test]
    fn terminal_gets_one_line_after_a_second_cleared_at_the_end() {
        let mut progress = Progress::new(ProgressStyle::Live, "x", Some(at(300)));
        assert_eq!(progress.see(seen(holder(41), 0, 0)), None);
        assert_eq!(
            (progress.got(at(0), Some(Fence::new(1))), progress.end()),
            (None, "")
        );
        let line = progress.tick(at(1)).unwrap();
        assert!(
            line.starts_with("\r\x1b[2K")
                && line.contains("held 3m13s")
                && line.contains("; lease 23s  [1.0s/5m00s]")
                && !line.contains('\n'),
            "{line:?}"
        );
        assert_eq!(progress.tick(Duration::from_millis(1_500)), None);
        assert!(progress.tick(at(2)).is_some());
        assert!(
            progress
                .got(at(3), Some(Fence::new(1)))
                .unwrap()
                .starts_with("\r\x1b[2Kleasehold: got")
        );
        assert_eq!(progress.end(), "\r\x1b[2K");
    }

    #[test]
    fn quiet_is_quiet() {
        let mut progress = Progress::new(ProgressStyle::Quiet, "x", None);
        assert_eq!(progress.see(seen(holder(41), 0, 0)), None);
        assert_eq!(
            (
                progress.tick(at(60)),
                progress.got(at(61), Some(Fence::new(1))),
                progress.end()
            ),
            (None, None, "")
        );
    }

    #[test]
    fn a_foreign_holder_and_a_strange_name_can_be_shown() {
        let mut progress = Progress::new(ProgressStyle::Lines, "a\u{202e}b\"", None);
        assert_eq!(
            progress.see(seen(foreign(), 0, 0)).unwrap(),
            "leasehold: waiting for \"a\\u{202e}b\\\"\", 1st in line: held by a foreign client (string), which never expires\n"
        );
    }
}

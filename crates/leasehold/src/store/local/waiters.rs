//! The waiters of one client, used to notice grants by other processes. It is a hint only: safety does not depend on
//! it.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Now, Owner, Reply, Step, WAITER_GRACE};

/// The pause before the first look at the file after a request begins to wait, and the longest pause between two looks.
const FIRST_LOOK: Duration = Duration::from_micros(100);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The waiters of this client, as known from the answers.
pub(super) struct LocalWaiters {
    owners: HashMap<Owner, WaiterEntry>,
    /// The version of the file at the last look. It changes when another connection commits.
    pub(super) seen_version: Option<i64>,
    pause: Duration,
}

struct WaiterEntry {
    key: String,
    /// After this time, the store has given the waiter up.
    until_ms: u64,
}

impl Default for LocalWaiters {
    fn default() -> Self {
        Self {
            owners: HashMap::new(),
            seen_version: None,
            pause: LOOK_EVERY,
        }
    }
}

impl LocalWaiters {
    /// Learns from the reply to a step.
    pub(super) fn note(&mut self, key: &str, step: &Step, reply: &Reply, now: Now) {
        let (Step::Acquire { owner, .. }
        | Step::Extend { owner, .. }
        | Step::Release { owner, .. }) = step
        else {
            return;
        };
        if let Reply::Busy(busy) = reply
            && matches!(step, Step::Acquire { wait: Some(_), .. })
        {
            let grace = (busy.poll_after + WAITER_GRACE).as_millis();
            let grace = u64::try_from(grace).unwrap_or(u64::MAX);
            let entry = WaiterEntry {
                key: key.into(),
                until_ms: now.millis().saturating_add(grace),
            };
            if self.owners.insert(owner.clone(), entry).is_none() {
                self.pause = FIRST_LOOK;
            }
        } else {
            self.owners.remove(owner);
        }
    }

    /// The key of each waiter.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.owners.values().map(|entry| entry.key.as_str())
    }

    /// The pause between two looks at the file; `None` if no request waits.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.owners.is_empty()).then_some(self.pause)
    }

    /// Makes the pause slowly longer. A lock that is held for a moment is then handed over in a fraction of that
    /// moment, and a lock that is held for long costs little to wait for.
    pub(super) fn looked(&mut self) {
        self.pause = (self.pause * 5 / 4).min(LOOK_EVERY);
    }

    /// Removes a granted waiter. Returns the key that it waited for.
    pub(super) fn granted(&mut self, owner: &Owner) -> Option<String> {
        self.owners.remove(owner).map(|entry| entry.key)
    }

    /// Forgets waiters that have not asked again for long.
    pub(super) fn forget_silent(&mut self, now: Now) {
        self.owners
            .retain(|_, entry| entry.until_ms >= now.millis());
    }
}

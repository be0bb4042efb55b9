//! The waiters of one client, to notice when another process hands them a lock. Must never be needed for safety.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Now, Owner, Reply, Step, WAITER_GRACE};

/// How long until the first look at the file after someone begins to wait, and between two looks at most.
const FIRST_LOOK: Duration = Duration::from_micros(100);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Who of this client stands in line, as far as the answers told.
pub(super) struct LocalWaiters {
    owners: HashMap<Owner, WaiterEntry>,
    /// The version of the file that was last looked at; it changes when another connection commits.
    pub(super) seen_version: Option<i64>,
    pause: Duration,
}

struct WaiterEntry {
    key: String,
    /// Past it, the store has given up on the waiter, and so may we.
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
    /// Takes note of what a step was answered.
    pub(super) fn note(&mut self, key: &str, step: &Step, reply: &Reply, now: Now) {
        match (step, reply) {
            (
                Step::Acquire {
                    owner,
                    wait: Some(_),
                    ..
                },
                Reply::Busy(busy),
            ) => {
                let grace =
                    u64::try_from((busy.poll_after + WAITER_GRACE).as_millis()).unwrap_or(u64::MAX);
                let until_ms = now.millis().saturating_add(grace);
                let entry = WaiterEntry {
                    key: key.into(),
                    until_ms,
                };
                if self.owners.insert(owner.clone(), entry).is_none() {
                    self.pause = FIRST_LOOK;
                }
            }
            (
                Step::Acquire { owner, .. }
                | Step::Extend { owner, .. }
                | Step::Release { owner, .. },
                _,
            ) => {
                self.owners.remove(owner);
            }
            _ => {}
        }
    }

    /// How long to let the file alone between two looks; `None` while nobody waits.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.owners.is_empty()).then_some(self.pause)
    }

    /// Makes the pause longer, slowly: a lock that is held for a moment is handed over in a fraction of that moment, and
    /// one that is held for long costs little to wait for.
    pub(super) fn looked(&mut self) {
        self.pause = (self.pause * 5 / 4).min(LOOK_EVERY);
    }

    /// The waiter as this owner, and the key it waits for; it waits no more.
    pub(super) fn granted(&mut self, owner: &Owner) -> Option<String> {
        self.owners.remove(owner).map(|entry| entry.key)
    }

    /// Forgets those that were not heard of for long.
    pub(super) fn forget_silent(&mut self, now: Now) {
        self.owners
            .retain(|_, entry| entry.until_ms >= now.millis());
    }
}

//! Guarded cache entries: which client may load a value, and which values are fresh.
//!
//! An entry is a value that is *fresh* until its soft expiry and *stale* until the store drops it. Beside it is a [`Control`]:
//! the current loader, the last invalidation, and the back-off after failed loads. One function, [`EntryState::apply`],
//! decides. The embedded stores keep its state; the scripts under `lua/cache` do the same in Redis and are compared with it;
//! the lab's model explores it. It reads no clock and does not look into values.
//!
//! # Invariants
//!
//! - **K1** While a loader's lease lasts, no other client is told to load, unless the entry was invalidated since.
//! - **K2** The numbers that one entry gives out, to loads and to invalidations, strictly rise, so a later load has a higher
//!   version. They rise also when the store forgets the last one, as long as the wall clock has passed it.
//! - **K3** A value is stored as fresh only if its load was granted after the last invalidation. Forgotten history counts as
//!   an invalidation: a load that the control does not know, because the control is newer or gone, fills as stale. A load with
//!   a number above all that the control gave out is dropped: the control was lost, and the clock was set back.
//! - **K4** The version of the stored value only rises: a late load never replaces the value of a later one. A late value is
//!   stored if there is none, whether or not its lease has ended: a loader slower than its lease still fills the cache.
//! - **K5** A client that is told to wait is woken when the load ends: by its value, its failure or an invalidation. At the
//!   end of the lease it asks again without a wake.
//! - **K6** Every step may be repeated: a repeated load, renewal or commit gets the same answer.
//! - **K7** Everything that is kept expires.
//! - **K8** A value that is no entry is never overwritten or deleted.

mod entry;
mod state;
mod step;

use std::collections::BTreeMap;

use crate::name::LockName;
use crate::time::Now;

pub use entry::{Body, Format, HEADER_BYTES, Header, Standing, Value, Version};
pub use state::{BackOff, Control, EntryState, Loader, MEMORY, POLL, POLL_UNSUBSCRIBED};
pub use step::{Begin, Commit, CommitOutcome, Outcome, Reply, Step, Token};

/// Every entry of a store, by its key. After a sweep, nothing is kept of an expired entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheWorld {
    entries: BTreeMap<LockName, EntryState>,
}

impl CacheWorld {
    /// Takes one step on the entry `key`, atomically, at `now`.
    pub fn apply(&mut self, now: Now, key: &LockName, step: &Step) -> Outcome {
        let mut state = self.entries.remove(key).unwrap_or_default();
        let outcome = state.apply(now, step);
        if !state.is_empty() {
            self.entries.insert(key.clone(), state);
        }
        outcome
    }

    /// The value stored under `key`.
    pub fn look(&self, now: Now, key: &LockName) -> Option<&Value> {
        self.entries.get(key)?.look(now)
    }

    /// The state of `key`, for tests that play a loss of data.
    pub fn entry(&mut self, key: &LockName) -> &mut EntryState {
        self.entries.entry(key.clone()).or_default()
    }

    /// The number of entries with a state.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry has a state.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets expired entries.
    pub fn sweep(&mut self, now: Now) {
        self.entries.retain(|_, state| {
            state.expire(now);
            !state.is_empty()
        });
    }
}

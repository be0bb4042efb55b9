//! All entries of a store. After a sweep, nothing is kept of an expired entry.

use std::collections::BTreeMap;

use super::entry::Value;
use super::state::EntryState;
use super::step::{Outcome, Step};
use crate::name::LockName;
use crate::time::Now;

/// Every entry of a store, by its key.
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

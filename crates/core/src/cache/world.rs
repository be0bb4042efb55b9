//! All entries of a store. Must never keep anything of an entry that has expired and is swept.

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

    /// What is stored under `key`.
    pub fn look(&self, now: Now, key: &LockName) -> Option<&Value> {
        self.entries.get(key)?.look(now)
    }

    /// The state of `key`, to be changed from outside the rules: by a test that plays a data loss.
    pub fn entry(&mut self, key: &LockName) -> &mut EntryState {
        self.entries.entry(key.clone()).or_default()
    }

    /// How many entries something is kept for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets what expired without anyone asking for it again.
    pub fn sweep(&mut self, now: Now) {
        self.entries.retain(|_, state| {
            state.expire(now);
            !state.is_empty()
        });
    }
}

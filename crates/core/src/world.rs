//! All locks of a store. Must never keep anything for a name whose lock is free and unqueued.

use std::collections::BTreeMap;

use crate::fence::Counter;
use crate::name::LockName;
use crate::presence::Presence;
use crate::state::LockState;
use crate::step::{Outcome, Step};
use crate::time::Now;

/// Every lock of a store, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    locks: BTreeMap<LockName, LockState>,
    /// The counter that all their fences are drawn from.
    pub counter: Counter,
}

impl World {
    /// Takes one step on the lock `name`, atomically, at `now`.
    pub fn apply(
        &mut self,
        now: Now,
        name: &LockName,
        step: &Step,
        presence: &dyn Presence,
    ) -> Outcome {
        let mut state = self.locks.remove(name).unwrap_or_default();
        let outcome = state.apply(&mut self.counter, now, step, presence);
        if !state.is_empty() {
            self.locks.insert(name.clone(), state);
        }
        outcome
    }

    /// The state kept for `name`, if any.
    pub fn get(&self, name: &LockName) -> Option<&LockState> {
        self.locks.get(name)
    }

    /// The state of `name`, to be changed from outside the rules: by a test that plays a foreign client or a data loss.
    pub fn entry(&mut self, name: &LockName) -> &mut LockState {
        self.locks.entry(name.clone()).or_default()
    }

    /// The names that something is kept for.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.locks.keys()
    }

    /// Forgets names that expired without anyone asking for them again, so that names used once cost nothing for ever.
    pub fn sweep(&mut self, now: Now) {
        self.locks.retain(|_, state| {
            state.expire(now);
            state.forget_silent(now);
            !state.is_empty()
        });
    }
}

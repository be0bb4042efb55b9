//! Remembers the names that were put into the index recently. If a name is forgotten, it is only put there again.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use leasehold_core::LockName;

use crate::clock::Moment;
use crate::sync::Mutex;

/// How often a name with waiters is put into the index again.
const INDEX_AGAIN: Duration = Duration::from_secs(10);

/// How many names are remembered to be in the index.
const INDEXED: usize = 1024;

#[derive(Default)]
pub(super) struct Indexed(Mutex<HashMap<LockName, Moment>>);

impl Indexed {
    /// Whether this name has to be put into the index at `now`. Remembers it.
    pub(super) fn is_new(&self, name: &LockName, now: Moment) -> bool {
        let mut indexed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |at: &Moment| now.since(*at) < INDEX_AGAIN;
        if indexed.get(name).is_some_and(is_known) {
            return false;
        }
        if indexed.len() >= INDEXED {
            indexed.clear();
        }
        indexed.insert(name.clone(), now);
        true
    }
}

//! Which names were put into the index a moment ago. A hint: what is forgotten is put there again.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use leasehold_core::LockName;

use crate::clock::Moment;
use crate::sync::Mutex;

/// How often a name that is waited for is put into the index anew.
const INDEX_AGAIN: Duration = Duration::from_secs(10);

/// How many names are remembered to be in the index.
const INDEXED: usize = 1024;

#[derive(Default)]
pub(super) struct Indexed(Mutex<HashMap<LockName, Moment>>);

impl Indexed {
    /// Whether this name is to be put there at `now`, which is noted.
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

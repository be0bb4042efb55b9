//! The states from which a lease is reached, as far as they are known.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// In how many parts the memory is locked.
const PARTS: u64 = 16;

/// The states from which a lease is reached; shared by all copies of a model.
#[derive(Debug, Clone)]
pub(super) struct Hopeful(Arc<[Mutex<HashSet<u64>>]>);

impl Default for Hopeful {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Mutex::default()).collect())
    }
}

impl Hopeful {
    fn part(&self, hash: u64) -> &Mutex<HashSet<u64>> {
        &self.0[usize::try_from(hash % PARTS).unwrap_or_default()]
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        // A set is whole after each call, also after a panic.
        let part = self.part(hash).lock();
        part.unwrap_or_else(PoisonError::into_inner).contains(&hash)
    }

    pub(super) fn add(&self, hash: u64) {
        let part = self.part(hash).lock();
        part.unwrap_or_else(PoisonError::into_inner).insert(hash);
    }
}

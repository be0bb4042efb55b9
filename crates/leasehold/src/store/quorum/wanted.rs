//! The locks for which other clients are known to wait.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::LockName;

use crate::clock::Moment;

/// The most names that are remembered.
const MOST: usize = 1_024;

/// How long a sign of waiters counts.
const MEMORY: Duration = Duration::from_secs(3);

/// The names of these locks, and when this client last had a sign of waiters.
#[derive(Default)]
pub(super) struct WantedNames(HashMap<String, Moment>);

impl WantedNames {
    /// There are waiters for the lock with this key.
    pub(super) fn note(&mut self, key: &str, now: Moment) {
        if let Some(last) = self.0.get_mut(key) {
            *last = now;
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, last| now.since(*last) < MEMORY);
        }
        if self.0.len() < MOST {
            self.0.insert(key.to_owned(), now);
        }
    }

    /// Whether there were waiters a moment ago.
    pub(super) fn is_wanted(&self, name: &LockName, now: Moment) -> bool {
        let last = self.0.get(name.key());
        last.is_some_and(|last| now.since(*last) < MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_of_waiters_counts_for_three_seconds() {
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let name = LockName::new("stock").unwrap();
        let mut wanted = WantedNames::default();
        assert!(!wanted.is_wanted(&name, at(1)));
        wanted.note(name.key(), at(1));
        assert!(wanted.is_wanted(&name, at(3)));
        wanted.note(name.key(), at(3));
        assert!(wanted.is_wanted(&name, at(5)));
        assert!(!wanted.is_wanted(&name, at(6)));
        for other in 0..2 * MOST {
            wanted.note(&other.to_string(), at(6));
        }
        assert!(wanted.0.len() <= MOST);
    }
}

//! Waiting for something to become true. It must never be replaced by a fixed sleep: that is
//! either too short on a busy machine or too long on every other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Polls `condition` each 5 ms until it holds; panics with `what` when it has not within `limit`.
///
/// The condition is always tried at least once, and once more after the limit has passed.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    loop {
        // Read before the check: a slow machine must not skip the last try.
        let late = started.elapsed() >= limit;
        if condition() {
            return;
        }
        assert!(!late, "not within {limit:?}: {what}");
        thread::sleep(POLL);
    }
}

/// Locks even after another thread's panic: destructors must still be able to clean up.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_as_soon_as_the_condition_holds() {
        let mut calls = 0;
        eventually(Duration::from_secs(10), "three calls", || {
            calls += 1;
            calls == 3
        });
        assert_eq!(calls, 3);
    }

    #[test]
    #[should_panic(expected = "pigs fly")]
    fn panics_with_what_it_waited_for() {
        eventually(Duration::from_millis(20), "pigs fly", || false);
    }
}

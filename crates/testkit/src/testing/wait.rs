//! Waits until a condition is true. A fixed sleep would be too short on a busy machine and too
//! long on every other.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Polls `condition` each 5 ms until it holds. Panics with the text of `what` if it does not hold
/// within `limit`.
///
/// The condition is tried at least once, and once more after the limit has passed.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    done(until(limit, || check(condition(), || what.to_owned())));
}

/// Polls `check` like [`eventually`], until it returns a value. An error has the last reason why it did not.
pub(crate) fn until<T>(
    limit: Duration,
    mut check: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let started = Instant::now();
    loop {
        // Read before the check: a slow machine must not skip the last try.
        let late = started.elapsed() >= limit;
        match check() {
            Ok(value) => return Ok(value),
            Err(why) if late => return Err(format!("not within {limit:?}: {why}")),
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// The outcome of one poll.
pub(crate) fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// The value; a panic says why there is none.
#[track_caller]
pub(crate) fn done<T>(outcome: Result<T, String>) -> T {
    match outcome {
        Ok(value) => value,
        Err(why) => panic!("{why}"),
    }
}

/// Awaits a future on this thread without any runtime, for code that must work without one.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Bell(Thread);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Bell(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Locks even after a panic of another thread, since destructors must still be able to clean up.
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
    fn a_future_that_is_woken_elsewhere_is_awaited() {
        let mut pending = true;
        let future = std::future::poll_fn(|context| {
            if std::mem::take(&mut pending) {
                let waker = context.waker().clone();
                thread::spawn(move || waker.wake());
                return Poll::Pending;
            }
            Poll::Ready(7)
        });
        assert_eq!(block_on(future), 7);
    }

    #[test]
    #[should_panic(expected = "pigs fly")]
    fn panic_names_the_awaited_condition() {
        eventually(Duration::from_millis(20), "pigs fly", || false);
    }
}

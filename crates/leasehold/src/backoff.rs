//! Pauses between attempts, with jitter: clients that failed together do not retry together.

use std::time::Duration;

use crate::clock::micros;

/// Pauses that double up to a limit, each shortened by a random part of up to a half.
///
/// In microseconds, up to an hour, which take a quarter of the memory of a `Duration`: each lease has one.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: u32,
    next: u32,
    limit: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, limit: Duration) -> Self {
        let [first, limit] =
            [first, limit].map(|time| u32::try_from(micros(time)).unwrap_or(u32::MAX));
        Self {
            first,
            next: first,
            limit,
        }
    }

    /// The pause before the next attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = Duration::from_micros(self.next.into());
        self.next = self.next.saturating_mul(2).min(self.limit);
        pause.saturating_sub(fraction(pause / 2))
    }

    /// The last attempt worked: begin again with the first pause.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// `duration` plus a random part of up to a tenth, so waiters do not ask at the same time.
pub(crate) fn jittered(duration: Duration) -> Duration {
    duration + fraction(duration / 10)
}

/// A random part of `whole`.
fn fraction(whole: Duration) -> Duration {
    whole.mul_f64(random())
}

#[cfg(test)]
thread_local! {
    /// The random source of a deterministic test.
    static SEEDED: std::cell::RefCell<Option<fastrand::Rng>> = const { std::cell::RefCell::new(None) };
}

/// From now on, the pauses of this thread depend only on `seed`.
#[cfg(test)]
pub(crate) fn seed(seed: u64) {
    SEEDED.set(Some(fastrand::Rng::with_seed(seed)));
}

/// The seeds of a test run: those that the environment names, or so many.
#[cfg(test)]
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let text = std::env::var("LEASEHOLD_SEEDS").unwrap_or_else(|_| count.to_string());
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let [first, end] = [first, end].map(|number| number.parse().expect("LEASEHOLD_SEEDS"));
    first..end
}

/// From 0 to 1, for jitter. Without random bits there is none; nothing else may depend on them.
pub(crate) fn random() -> f64 {
    #[cfg(test)]
    if let Some(part) = SEEDED.with_borrow_mut(|rng| rng.as_mut().map(fastrand::Rng::f64)) {
        return part;
    }
    f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause()).collect();
        for (pause, most) in pauses.iter().zip([10, 20, 40, 40]) {
            assert!(
                *pause <= Duration::from_millis(most) && *pause >= Duration::from_millis(most / 2),
                "{pauses:?}"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(10));
        assert!(jittered(Duration::from_millis(100)) <= Duration::from_millis(110));
    }
}

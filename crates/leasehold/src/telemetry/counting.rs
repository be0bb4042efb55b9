//! Counters by their labels, all registered at the beginning.

use metrics::Counter;

/// Registers the counter by adding zero.
pub(super) fn zero(counter: Counter) -> Counter {
    counter.increment(0);
    counter
}

pub(super) fn count<T: PartialEq>(counters: &[(T, Counter)], what: &T) {
    if let Some((_, counter)) = counters.iter().find(|(of, _)| of == what) {
        counter.increment(1);
    }
}

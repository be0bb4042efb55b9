//! Counters by what they count. Must never make one for what was not there from the beginning.

use metrics::Counter;

/// Shows that it is there.
pub(super) fn zero(counter: Counter) -> Counter {
    counter.increment(0);
    counter
}

pub(super) fn count<T: PartialEq>(counters: &[(T, Counter)], what: &T) {
    if let Some((_, counter)) = counters.iter().find(|(of, _)| of == what) {
        counter.increment(1);
    }
}

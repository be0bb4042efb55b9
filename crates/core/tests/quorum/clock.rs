//! A clock with an offset and a rate of its own. All times are in microseconds.

use testkit::Rng;

/// The wall time at which histories begin.
const EPOCH: u64 = 1_790_000_000_000_000;
const SECOND: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    offset: u64,
    /// In thousandths of real time: 996 to 1,004.
    rate: u64,
}

impl Clock {
    /// A clock that is right, far ahead, far behind, or anything between.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let far = rng.pick(&[0, 0, 1, 5, 19]) * SECOND / 2;
        let offset = match rng.below(3) {
            0 => far,
            1 => 20 * SECOND - far,
            _ => 10 * SECOND + rng.below(far + 1),
        };
        Self {
            offset: EPOCH + offset,
            rate: 996 + rng.below(9),
        }
    }

    /// Its reading at a real time.
    pub(crate) fn wall(self, at: u64) -> u64 {
        self.offset + at * self.rate / 1_000
    }

    /// The real time at which so much will have passed on this clock since `from`.
    pub(crate) fn after(self, from: u64, time: u64) -> u64 {
        from + time * 1_000 / self.rate
    }
}

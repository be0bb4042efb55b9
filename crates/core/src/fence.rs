//! Fencing tokens. Must never issue one that is not above every token issued before it for the same name (C2).

use std::fmt;

/// The fencing token of an exclusive lease: a number that only rises for a given lock name.
///
/// Hand it to the resource **at first touch**, reads included; see `Gate` in the library.
/// It fits in 53 bits, so that Lua, JavaScript and JSON carry it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    // Hidden are the rules of stores: core, stores and models share them, and a program that shows fences needs none.

    /// Distance between two grants of a store: the numbers between are for hand-overs inside the holder's process.
    #[doc(hidden)]
    pub const BLOCK: u64 = 64;

    /// The largest fence: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A fence that was issued before, read back from where it was kept.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether it is `first`, which a store issued, or one of those that belong to the same holder.
    #[doc(hidden)]
    pub const fn is_in_block_of(self, first: Self) -> bool {
        first.0 <= self.0 && self.0 - first.0 < Self::BLOCK
    }

    /// How many blocks a holder draws at once when it needs more.
    #[doc(hidden)]
    pub const REFILL: u64 = 16;

    /// The last of [`Fence::REFILL`] blocks after `last`, all of them for one holder; see [`Fence::after`].
    #[doc(hidden)]
    pub fn refill(last: Option<Self>, wall_us: u64) -> Self {
        let more = (Self::REFILL - 1) * Self::BLOCK;
        Self((Self::after(last, wall_us).0 + more).min(Self::MAX.0))
    }

    /// The next fence after `last`, at `wall_us` microseconds since the Unix epoch.
    ///
    /// The floor of wall time is what keeps fences rising when `last` was lost (flush, eviction, failover, restart);
    /// the block keeps them rising when the clock stands still or goes back.
    #[doc(hidden)]
    pub fn after(last: Option<Self>, wall_us: u64) -> Self {
        // A number near the end was not issued by us: it counts as lost, or two grants would share the last one.
        let last = last.filter(|last| last.0 <= Self::MAX.0 - Self::BLOCK);
        let by_count = last.map_or(0, |last| last.0 + Self::BLOCK);
        Self(by_count.max(wall_us).min(Self::MAX.0))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Fence;

    #[test]
    fn rises_when_the_clock_stands_still_goes_back_or_the_last_one_is_lost() {
        let first = Fence::after(None, 1_000);
        let second = Fence::after(Some(first), 1_000);
        let third = Fence::after(Some(second), 5);
        let after_loss = Fence::after(None, 2_000);
        assert_eq!(
            (first.get(), second.get(), third.get()),
            (1_000, 1_064, 1_128)
        );
        assert!(after_loss > third);
        assert_eq!(Fence::after(Some(Fence::MAX), 7).get(), 7);
    }
}

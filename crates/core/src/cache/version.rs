//! The numbers that order the loads and the invalidations of an entry. Must never give out one that is not above the last (K2).

/// A number of an entry that only rises (K2): of a load, or of an invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// The largest one: 2^53 - 1, which Lua and JavaScript carry exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A version read back from where it was kept.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next one after `last`, at `wall_us` microseconds since 1970. As for fences, the floor of wall time keeps
    /// them rising when the last one was lost, and the count when the clock stands still or goes back.
    pub fn after(last: Self, wall_us: u64) -> Self {
        // One near the end was not given out by us: it counts as lost.
        let by_count = if last < Self::MAX { last.0 + 1 } else { 0 };
        Self(by_count.max(wall_us).min(Self::MAX.0))
    }
}

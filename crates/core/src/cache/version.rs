//! Versions: the rising numbers that order the loads and the invalidations of an entry (K2).

/// The number of a load or of an invalidation of an entry; it only rises (K2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// The largest one: 2^53 - 1, which Lua and JavaScript carry exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A version that was read back from a store.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next version after `last`, at `wall_us` microseconds since 1970. As for fences, wall time as the floor keeps them
    /// rising when the last one was lost, and counting does when the clock pauses or goes back.
    pub fn after(last: Self, wall_us: u64) -> Self {
        // A number near the maximum was not given out by a store: it counts as lost.
        let by_count = if last < Self::MAX { last.0 + 1 } else { 0 };
        Self(by_count.max(wall_us).min(Self::MAX.0))
    }
}

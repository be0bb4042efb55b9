//! Fencing tokens. Each is higher than every one drawn before from the same counter (C2).

use std::fmt;

/// The fencing token of an exclusive lease: a number that only rises for a given lock name.
///
/// Hand it to the resource **at first touch**, reads included; see `Gate` in the library.
/// It fits in 53 bits, so that Lua, JavaScript and JSON carry it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The largest fence: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A fence that was issued before and then stored elsewhere.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }
}

// Items with `doc(hidden)` are for stores, models and this crate; a program that shows fences does not need them.

/// How many fences are drawn with one grant: 1, or up to 1,024 for a client that hands the lock on inside its process.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u16);

impl Block {
    /// One fence.
    pub const ONE: Self = Self(1);

    /// The largest block.
    pub const MOST: Self = Self(1_024);

    /// A block of `wanted` fences, or of the nearest possible size.
    pub fn nearest(wanted: u64) -> Self {
        match u16::try_from(wanted) {
            Ok(wanted) => Self(wanted).clamp(Self::ONE, Self::MOST),
            Err(_) => Self::MOST,
        }
    }

    /// The size of the block.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }
}

/// The fences of one hold: consecutive numbers, drawn in one step.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fences {
    /// The fence of the grant, by which others know the holder.
    pub first: Fence,
    /// How many there are.
    pub block: Block,
}

impl Fences {
    /// The last fence of the block.
    pub const fn last(self) -> Fence {
        Fence(self.first.0 + self.block.get() - 1)
    }

    /// Whether `fence` is in the block.
    pub const fn contains(self, fence: Fence) -> bool {
        self.first.0 <= fence.0 && fence.0 <= self.last().0
    }
}

/// The last fence that a store has drawn, for any name; `None` if it was lost. Each grant draws its fences from here.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Counter(pub Option<Fence>);

/// The fences that a counter accepts from a client that proposes them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Acceptable {
    /// The lowest first fence.
    pub least: Fence,
    /// The highest first fence.
    pub most: Fence,
}

impl Counter {
    /// Draws a block of fences at `wall_us` microseconds since the Unix epoch.
    ///
    /// Wall time as the floor keeps fences rising when the counter was lost (flush, failover, restart). Counting keeps them
    /// rising when the clock pauses or goes back.
    pub fn draw(&mut self, block: Block, wall_us: u64) -> Fences {
        let next = self.counted().map_or(0, |last| last.0 + 1);
        let first = Fence(next.max(wall_us).min(Self::END + 1));
        let fences = Fences { first, block };
        self.0 = Some(fences.last());
        fences
    }

    /// The fences that this counter accepts: above all that it has counted, and at most `most_us`. A counter without a number
    /// accepts none below `floor_us`, since it may have forgotten the ones before.
    pub fn acceptable(&self, floor_us: u64, most_us: u64) -> Acceptable {
        let least = self.counted().map_or(floor_us, |last| last.0 + 1);
        Acceptable {
            least: Fence(least.min(Self::END + 1)),
            most: Fence(most_us.min(Self::END)),
        }
    }

    /// Counts fences that a client has proposed, if they are acceptable.
    ///
    /// # Errors
    /// The acceptable fences; the counter is unchanged.
    pub fn accept(
        &mut self,
        fences: Fences,
        floor_us: u64,
        most_us: u64,
    ) -> Result<(), Acceptable> {
        let acceptable = self.acceptable(floor_us, most_us);
        if fences.first < acceptable.least || fences.first > acceptable.most {
            return Err(acceptable);
        }
        self.0 = Some(fences.last());
        Ok(())
    }

    /// Whether it was lost, or was never there.
    pub fn is_lost(&self) -> bool {
        self.counted().is_none()
    }

    /// The highest number that counts. A higher one counts as lost; otherwise two grants would share the last fence.
    const END: u64 = Fence::MAX.0 - Block::MOST.get();

    fn counted(&self) -> Option<Fence> {
        self.0.filter(|last| last.0 <= Self::END)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Counter, Fence, Fences};

    #[test]
    fn fence_rises_when_clock_pauses_or_counter_is_lost() {
        let mut counter = Counter::default();
        let mut draw = |wanted, wall_us| counter.draw(Block::nearest(wanted), wall_us);
        let first = draw(1, 1_000);
        let second = draw(64, 1_000);
        let third = draw(1, 5);
        assert_eq!(
            (first.first.get(), second.first.get(), third.first.get()),
            (1_000, 1_001, 1_065)
        );
        assert_eq!(second.last().get(), 1_064);
        assert!(second.contains(second.last()) && !second.contains(third.first));
        let after_loss = Counter::default().draw(Block::ONE, 2_000);
        assert!(after_loss.first > third.last());
    }

    #[test]
    fn number_no_store_counted_is_taken_for_lost() {
        for near_the_end in [Fence::MAX, Fence::new(Fence::MAX.get() - 1_023)] {
            let mut counter = Counter(Some(near_the_end));
            assert_eq!(counter.draw(Block::MOST, 7).first.get(), 7);
        }
        let mut counter = Counter::default();
        assert_eq!(counter.draw(Block::MOST, u64::MAX).last(), Fence::MAX);
    }

    #[test]
    fn a_block_has_from_one_to_1_024_fences() {
        let sizes = [0, 1, 17, 1_024, 1_025, u64::MAX].map(|wanted| Block::nearest(wanted).get());
        assert_eq!(sizes, [1, 1, 17, 1_024, 1_024, 1_024]);
    }

    #[test]
    fn a_counter_accepts_what_is_within_its_bounds() {
        let block = Block::nearest(4);
        let proposed = |first| Fences {
            first: Fence::new(first),
            block,
        };
        let (mut counter, floor_us, most_us) = (Counter::default(), 1_000, 2_000);
        assert!(counter.is_lost());
        for outside in [999, 2_001] {
            let refused = counter.accept(proposed(outside), floor_us, most_us);
            assert_eq!(refused, Err(counter.acceptable(floor_us, most_us)));
        }
        assert!(counter.accept(proposed(1_000), floor_us, most_us).is_ok());
        assert!(!counter.is_lost());
        assert!(counter.accept(proposed(1_003), floor_us, most_us).is_err());
        assert!(counter.accept(proposed(2_000), floor_us, most_us).is_ok());
        assert_eq!(counter.0, Some(Fence::new(2_003)));
    }

    #[test]
    fn a_counter_at_its_end_accepts_nothing_more() {
        let bounds = Counter(Some(Fence(Counter::END))).acceptable(0, u64::MAX);
        assert_eq!(bounds.least.get(), Counter::END + 1);
        assert_eq!(bounds.most.get(), Counter::END);
        let forgotten = Counter::default().acceptable(u64::MAX, u64::MAX);
        assert_eq!(forgotten, bounds);
    }
}

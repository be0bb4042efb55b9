//! The client's choice of fences to propose.

use crate::fence::{Acceptable, Block, Fence, Fences};

/// Chooses numbers near the clocks of the nodes. It learns how far the client's clock is from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proposer {
    /// Added to the client's clock, in microseconds.
    lead_us: i64,
    /// The number above the last proposal.
    next: u64,
}

impl Proposer {
    /// Chooses fences at `wall_us` on the client's clock. They are above the last ones, unless the bounds of another round demand a
    /// lower number.
    pub fn propose(&mut self, block: Block, wall_us: u64, bounds: Option<Acceptable>) -> Fences {
        let mut first = wall_us.saturating_add_signed(self.lead_us).max(self.next);
        if let Some(Acceptable { least, most }) = bounds {
            first = first.max(least.get()).min(most.get());
        }
        // Above it, a number counts as lost.
        first = first.min(Fence::MAX.get() - 2 * Block::MOST.get());
        let fences = Fences {
            first: Fence::new(first),
            block,
        };
        self.next = fences.last().get() + 1;
        fences
    }

    /// Learns the bounds of the nodes at `wall_us`, so that the next proposal is within them.
    pub fn learn(&mut self, wall_us: u64, bounds: Acceptable) {
        let from_clock = |fence: Fence| {
            let distance = i64::try_from(fence.get().abs_diff(wall_us)).unwrap_or(i64::MAX);
            if fence.get() < wall_us {
                -distance
            } else {
                distance
            }
        };
        self.lead_us = self
            .lead_us
            .max(from_clock(bounds.least))
            .min(from_clock(bounds.most));
    }
}

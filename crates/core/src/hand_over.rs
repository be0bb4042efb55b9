//! What a client may do inside its process with a lock that it holds. Must never hand out a fence twice, nor keep others
//! waiting for longer than the bound (C7).
//!
//! A store's fences are [`Fence::BLOCK`] apart, and the numbers after each belong to its holder. So a lock can go from task
//! to task of one process without a round trip, each lease with a fence of its own.

use std::time::Duration;

use crate::Fence;

/// How many times in a row a client hands a lock on inside its process while others are known to wait.
pub const HAND_OVERS: u32 = 16;

/// For how long it does so.
pub const HAND_OVER_FOR: Duration = Duration::from_millis(50);

/// How many fences of the grant's block are left, at most, when a client should ask for more. A stay that others wait for
/// ends before, so that fences run ahead of the clock only where they are used.
const LOW: u64 = Fence::BLOCK / 4;

/// The same for those of a refill: enough to go on with until the next ones come.
const LOW_OF_REFILL: u64 = Fence::BLOCK * Fence::REFILL / 2;

/// Why a lock is not handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHandOver {
    /// Others have waited for long enough: it is to be given back to the store.
    Unfair,
    /// There is no fence left: the store has to draw more first.
    Dry,
}

/// One client's stay in a lock, from the store's grant to the release: the fences it may hand out, and for how long.
///
/// Times are microseconds on any one clock of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stay {
    /// The last one handed out.
    fence: Fence,
    /// The last one of those it is from.
    last: Fence,
    /// The last block of those that the store has given for later.
    next: Option<Fence>,
    /// How few may be left before it asks for more.
    low: u64,
    /// Since when others are known to wait, and how many hand-overs there were since.
    wanted: Option<(u64, u32)>,
}

impl Stay {
    /// Begins with the fence of a grant, which the first lease has, and its block.
    pub const fn new(fence: Fence) -> Self {
        Self {
            fence,
            last: end_of(fence),
            next: None,
            low: LOW,
            wanted: None,
        }
    }

    /// The fence that was handed out last.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// The store told how many others wait. None of them may have been told before, or gone meanwhile.
    pub fn queued(&mut self, queued: u32, now_us: u64) {
        match (queued, self.wanted) {
            (0, _) => self.wanted = None,
            (_, None) => self.wanted = Some((now_us, 0)),
            (_, Some(_)) => {}
        }
    }

    /// Whether others are known to wait.
    pub const fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// The store drew [`Fence::REFILL`] blocks for this holder, the last of which begins with `fence`. What is no news
    /// changes nothing.
    pub fn refill(&mut self, fence: Fence) {
        if first_of(fence) > self.last && self.next.is_none_or(|next| fence > next) {
            self.next = Some(fence);
        }
    }

    /// Whether it is time to ask the store for more.
    pub fn is_low(&self) -> bool {
        self.next.is_none() && self.last.get() - self.fence.get() <= self.low
    }

    /// Whether there is no fence left for the next one.
    pub fn is_dry(&self) -> bool {
        self.fence == self.last && self.next.is_none()
    }

    /// Hands the lock on: the fence of the next lease, or why there is none.
    ///
    /// # Errors
    /// [`NoHandOver`], and nothing has changed.
    pub fn hand_over(&mut self, now_us: u64) -> Result<Fence, NoHandOver> {
        if let Some((since, count)) = self.wanted {
            let waited = Duration::from_micros(now_us.saturating_sub(since));
            if count >= HAND_OVERS || waited >= HAND_OVER_FOR {
                return Err(NoHandOver::Unfair);
            }
        }
        if self.fence < self.last {
            self.fence = Fence::new(self.fence.get() + 1);
        } else {
            let next = self.next.take().ok_or(NoHandOver::Dry)?;
            (self.fence, self.last, self.low) = (first_of(next), end_of(next), LOW_OF_REFILL);
        }
        if let Some((_, count)) = &mut self.wanted {
            *count += 1;
        }
        Ok(self.fence)
    }
}

/// The last fence of the block that begins with `first`.
const fn end_of(first: Fence) -> Fence {
    Fence::new(first.get() + Fence::BLOCK - 1)
}

/// The first fence of the blocks of a refill, of which `last` is the last one.
const fn first_of(last: Fence) -> Fence {
    Fence::new(last.get() - (Fence::REFILL - 1) * Fence::BLOCK)
}

#[cfg(test)]
mod tests {
    use super::{HAND_OVERS, NoHandOver, Stay};
    use crate::Fence;

    fn handed(stay: &mut Stay, now_us: u64) -> Result<u64, NoHandOver> {
        stay.hand_over(now_us).map(Fence::get)
    }

    #[test]
    fn a_block_is_handed_out_once_and_the_next_ones_follow() {
        let mut stay = Stay::new(Fence::new(1_000));
        for fence in 1_001..1_064 {
            assert_eq!(handed(&mut stay, 0), Ok(fence));
            assert!(stay.fence().is_in_block_of(Fence::new(1_000)));
            assert_eq!(stay.is_low(), fence >= 1_047);
        }
        assert_eq!(handed(&mut stay, 0), Err(NoHandOver::Dry));

        stay.refill(Fence::new(1_000 + 64 * 15));
        assert_eq!(
            handed(&mut stay, 0),
            Err(NoHandOver::Dry),
            "it may reach into the past"
        );
        let drawn = Fence::refill(Some(Fence::new(1_000)), 7);
        stay.refill(drawn);
        assert!(!stay.is_low());
        for fence in 1_064..1_064 + 1_024 {
            assert_eq!(handed(&mut stay, 0), Ok(fence));
            assert_eq!(stay.is_low(), fence >= 1_064 + 511);
        }
        assert_eq!(handed(&mut stay, 0), Err(NoHandOver::Dry));
        assert!(Fence::after(Some(drawn), 7) > stay.fence());
    }

    #[test]
    fn while_others_wait_it_is_handed_on_sixteen_times_or_for_fifty_milliseconds() {
        let mut stay = Stay::new(Fence::new(1_000));
        for _ in 0..40 {
            assert!(handed(&mut stay, 7).is_ok(), "nobody else waits");
        }
        stay.queued(2, 1_000_000);
        stay.queued(1, 1_040_000);
        for _ in 0..HAND_OVERS {
            assert!(handed(&mut stay, 1_049_999).is_ok());
        }
        assert_eq!(handed(&mut stay, 1_049_999), Err(NoHandOver::Unfair));

        let mut stay = Stay::new(Fence::new(1_000));
        stay.queued(1, 1_000_000);
        assert!(handed(&mut stay, 1_049_999).is_ok());
        assert_eq!(handed(&mut stay, 1_050_000), Err(NoHandOver::Unfair));
        stay.queued(0, 1_060_000);
        assert!(handed(&mut stay, 1_060_000).is_ok(), "they went away");
    }
}

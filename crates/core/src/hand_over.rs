//! Handing a held lock from task to task inside one process, within the bounds of C7.
//!
//! A client draws a block of fences with a grant. So a lock can go from task to task of one process without a round trip, and
//! each lease still gets its own fence. Readers of one process join the hold of the first of them.

use std::time::Duration;

use crate::fence::{Block, Fence, Fences};

/// How many times in a row a client hands a lock on inside its process while others are known to wait.
pub const HAND_OVERS: u32 = 16;

/// The longest time for which a client does so while others are known to wait.
pub const HAND_OVER_FOR: Duration = Duration::from_millis(50);

/// How often each waiting task is expected to ask again while no other client wants the lock.
const ROUNDS: u64 = 4;

/// By how much a block grows after one that was used up.
const GROWTH: u64 = 4;

/// Why a lock is not handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHandOver {
    /// Other clients have waited long enough: give the lock back to the store.
    Unfair,
    /// The block of fences is used up: give the lock back and acquire it again.
    Spent,
}

/// One client's session with a lock, from the store's grant to the release: which fences it may hand out, and for how long.
///
/// Times are microseconds on any one clock of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The fence that was handed out last.
    fence: Fence,
    /// How many fences were drawn with the grant, and how many of them were handed out after the first.
    block: Block,
    used: u16,
    /// Since when other clients are known to wait, and the number of hand-overs since then.
    wanted_since: Option<u64>,
    handed_over: u32,
}

impl Session {
    /// Begins with the fences of a grant; the first lease gets the first of them.
    pub const fn new(fences: Fences) -> Self {
        Self {
            fence: fences.first,
            block: fences.block,
            used: 0,
            wanted_since: None,
            handed_over: 0,
        }
    }

    /// The fence that was handed out last.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Records how many other clients wait, as the store reported it. They may have been reported before, or have left since.
    pub fn queued(&mut self, queued: u32, now_us: u64) {
        match (queued, self.wanted_since) {
            (0, _) => self.wanted_since = None,
            (_, None) => (self.wanted_since, self.handed_over) = (Some(now_us), 0),
            (_, Some(_)) => {}
        }
    }

    /// Whether others are known to wait.
    pub const fn is_wanted(&self) -> bool {
        self.wanted_since.is_some()
    }

    /// Whether no fence is left for the next lease.
    pub fn is_spent(&self) -> bool {
        u64::from(self.used) + 1 >= self.block.get()
    }

    /// How many fences to draw with the next grant, for which `tasks` wait: more if this block was used up.
    pub fn next_block(&self, tasks: usize) -> Block {
        let used_up = self.is_spent() && !self.is_wanted();
        let more = self.block.get() * if used_up { GROWTH } else { 0 };
        block_for(tasks, self.is_wanted()).max(Block::nearest(more))
    }

    /// Hands the lock on. Returns the fence of the next lease, or the reason for the refusal.
    ///
    /// # Errors
    /// [`NoHandOver`]; the session is unchanged.
    pub fn hand_over(&mut self, now_us: u64) -> Result<Fence, NoHandOver> {
        if self.is_spent() && self.is_fair(now_us) {
            return Err(NoHandOver::Spent);
        }
        self.join(now_us)?;
        self.fence = Fence::new(self.fence.get() + 1);
        self.used += 1;
        Ok(self.fence)
    }

    /// Lets one more reader of this client join those that hold. Readers that hold together have one fence.
    ///
    /// # Errors
    /// [`NoHandOver::Unfair`]; the session is unchanged.
    pub fn join(&mut self, now_us: u64) -> Result<(), NoHandOver> {
        if !self.is_fair(now_us) {
            return Err(NoHandOver::Unfair);
        }
        self.handed_over += u32::from(self.is_wanted());
        Ok(())
    }

    fn is_fair(&self, now_us: u64) -> bool {
        self.wanted_since.is_none_or(|since| {
            let waited = Duration::from_micros(now_us.saturating_sub(since));
            self.handed_over < HAND_OVERS && waited < HAND_OVER_FOR
        })
    }
}

/// How many fences a client should draw with a grant while `tasks` of its own wait for the lock. A fence too many runs
/// ahead of the clock; a fence too few costs a round trip.
pub fn block_for(tasks: usize, others_wait: bool) -> Block {
    let tasks = u64::try_from(tasks).unwrap_or(u64::MAX);
    match (tasks, others_wait) {
        (0 | 1, _) => Block::ONE,
        (_, true) => Block::nearest(tasks.min(u64::from(HAND_OVERS) + 1)),
        (_, false) => Block::nearest(tasks.saturating_mul(ROUNDS)),
    }
}

#[cfg(test)]
mod tests {
    use super::{GROWTH, HAND_OVERS, NoHandOver, Session, block_for};
    use crate::{Block, Fence, Fences};

    fn stay(wanted: u64) -> Session {
        Session::new(Fences {
            first: Fence::new(1_000),
            block: Block::nearest(wanted),
        })
    }

    fn handed(stay: &mut Session, now_us: u64) -> Result<u64, NoHandOver> {
        stay.hand_over(now_us).map(Fence::get)
    }

    #[test]
    fn a_block_is_handed_out_once() {
        let mut alone = stay(1);
        assert!(alone.is_spent());
        assert_eq!(handed(&mut alone, 0), Err(NoHandOver::Spent));

        let mut stay = self::stay(64);
        for fence in 1_001..1_064 {
            assert!(!stay.is_spent());
            assert_eq!(handed(&mut stay, 0), Ok(fence));
        }
        assert_eq!(handed(&mut stay, 0), Err(NoHandOver::Spent));
        assert_eq!(stay.fence(), Fence::new(1_063), "nothing has changed");
    }

    #[test]
    fn block_is_one_for_a_lone_task_and_bounded_if_others_wait() {
        let sizes = [
            (0, false),
            (1, false),
            (1, true),
            (2, true),
            (200, true),
            (2, false),
            (200, false),
        ]
        .map(|(tasks, others_wait)| block_for(tasks, others_wait).get());
        assert_eq!(sizes, [1, 1, 1, 2, 17, 8, 800]);
    }

    #[test]
    fn hand_over_is_bounded_by_16_times_and_50_ms_while_others_wait() {
        let mut stay = self::stay(1_024);
        for _ in 0..40 {
            assert!(handed(&mut stay, 7).is_ok(), "nobody else waits");
        }
        stay.queued(2, 1_000_000);
        stay.queued(1, 1_040_000);
        for _ in 0..HAND_OVERS {
            assert!(handed(&mut stay, 1_049_999).is_ok());
        }
        assert_eq!(handed(&mut stay, 1_049_999), Err(NoHandOver::Unfair));

        let mut stay = self::stay(1_024);
        stay.queued(1, 1_000_000);
        assert!(handed(&mut stay, 1_049_999).is_ok());
        assert_eq!(handed(&mut stay, 1_050_000), Err(NoHandOver::Unfair));
        stay.queued(0, 1_060_000);
        assert!(handed(&mut stay, 1_060_000).is_ok(), "they went away");
    }

    #[test]
    fn a_block_that_is_used_up_grows_unless_others_wait() {
        let mut used_up = stay(2);
        assert_eq!(used_up.next_block(1).get(), 1, "a fence is left");
        assert_eq!(handed(&mut used_up, 0), Ok(1_001));
        assert_eq!(used_up.next_block(1).get(), 2 * GROWTH);
        assert_eq!(used_up.next_block(200).get(), 800, "for so many tasks");
        assert!(!used_up.is_wanted());
        used_up.queued(1, 0);
        assert!(used_up.is_wanted());
        assert_eq!(used_up.next_block(1).get(), 1);
    }
}

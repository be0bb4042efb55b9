//! What a rung is. Must never say what its model found: that is for the checker.

use super::bounds::RungBounds;
use crate::ladder::program::{CLIENTS, Program};
use crate::ladder::property::LadderProperty;
use crate::ladder::redis::Tick;

/// A recipe for a lock.
#[derive(Debug)]
pub struct Rung {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Where it stands on the ladder: `P4`.
    pub number: &'static str,
    /// The recipe in one line, as people write it.
    pub recipe: &'static str,
    /// The seed of its failure in one sentence, or why it holds.
    pub why: &'static str,
    /// What the next rung changes, in one sentence.
    pub next: &'static str,
    /// What each client does.
    pub program: &'static dyn Program,
    /// The TTL of the lock; without one, how long others are ready to wait for a dead client.
    pub ttl: Tick,
    /// How many servers there are.
    pub servers: u8,
    /// How far each client's clock is ahead.
    pub skew: [Tick; CLIENTS],
    /// Whether all clients do the same, so that it does not matter which of them begins.
    pub are_alike: bool,
    /// What is asked of it.
    pub asks: &'static [LadderProperty],
    /// Which of these it is known for breaking; `None` if it breaks none.
    pub breaks: Option<LadderProperty>,
    /// How far to look in every build.
    pub bounds: RungBounds,
    /// How far to look if there is time.
    pub deep: RungBounds,
}

impl Rung {
    /// By how much the clients' clocks differ.
    pub fn spread(&self) -> Tick {
        let (mut least, mut most) = (self.skew[0], self.skew[0]);
        for skew in self.skew {
            least = least.min(skew);
            most = most.max(skew);
        }
        most - least
    }
}

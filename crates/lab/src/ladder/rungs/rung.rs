//! The definition of a rung.

use super::bounds::RungBounds;
use crate::ladder::program::{CLIENTS, Program};
use crate::ladder::property::LadderProperty;
use crate::ladder::redis::Tick;

/// A recipe for a lock.
#[derive(Debug)]
pub struct Rung {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its place on the ladder: `P4`.
    pub number: &'static str,
    /// The recipe in one line, as people write it.
    pub recipe: &'static str,
    /// The cause of its failure in one sentence, or why it holds.
    pub why: &'static str,
    /// What the next rung changes, in one sentence.
    pub next: &'static str,
    /// The program of each client.
    pub program: &'static dyn Program,
    /// The TTL of the lock; without one, how long others are prepared to wait for a dead client.
    pub ttl: Tick,
    /// How many servers there are.
    pub servers: u8,
    /// How far each client's clock is ahead.
    pub skew: [Tick; CLIENTS],
    /// Whether all clients are equal, so that it does not matter which of them begins.
    pub are_alike: bool,
    /// The properties to check.
    pub asks: &'static [LadderProperty],
    /// The property that it is known to violate; `None` if it violates none.
    pub breaks: Option<LadderProperty>,
    /// The bounds in every build.
    pub bounds: RungBounds,
    /// Larger bounds, for a longer exploration.
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

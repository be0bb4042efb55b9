//! The definition of a rung.

use super::bounds::RungBounds;
use crate::ladder::program::{CLIENTS, Program};
use crate::ladder::property::LadderProperty;
use crate::ladder::redis::{Key, RedisCommand, Tick, Value};

/// The TTL of the lock in all rungs.
pub(super) const TTL: Tick = 2;

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
    /// Whether the last of them has the protected data and no lock. It has no faults.
    pub has_resource: bool,
    /// How a server comes back that has lost its data.
    pub comes_back: Comeback,
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

/// How a server comes back that has lost its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comeback {
    /// At once, without data.
    Empty,
    /// It learns the highest counter of the other servers at once, and gives no vote for a TTL: its lock is nobody's.
    LearnsFirst,
    /// It gives no vote for a TTL, and then learns the highest counter of the other servers. By then, each lease that needed a lost
    /// vote has ended, or its fence is in the counter of another server.
    LearnsLast,
}

impl Comeback {
    /// The first commands of the server after its loss, before any of a client.
    pub fn at_first(self, ttl: Tick, highest: i16) -> Vec<RedisCommand> {
        match self {
            Self::Empty => Vec::new(),
            Self::LearnsFirst => vec![
                RedisCommand::SetNxPx(Value::Nobody, ttl),
                RedisCommand::Set(Key::Fence, Value::Number(highest)),
            ],
            Self::LearnsLast => vec![RedisCommand::SetNx(Key::Lock, Value::Nobody)],
        }
    }

    /// The commands that end a quarantine without a TTL. A TTL has passed since the first ones.
    pub fn at_last(self, highest: i16) -> Vec<RedisCommand> {
        match self {
            Self::Empty | Self::LearnsFirst => Vec::new(),
            Self::LearnsLast => vec![
                RedisCommand::Set(Key::Fence, Value::Number(highest)),
                RedisCommand::Del(Key::Lock),
            ],
        }
    }
}

impl Rung {
    /// How many servers keep the lock.
    pub fn lock_servers(&self) -> u8 {
        self.servers - u8::from(self.has_resource)
    }

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

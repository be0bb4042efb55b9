//! The definition of a rung, and the bounds of its exploration, which each printed verdict names.

use std::fmt;

use crate::ladder::program::{CLIENTS, Program};
use crate::ladder::property::LadderProperty;
use crate::ladder::redis::{Key, RedisCommand, Tick, Value};
use crate::text::{counted, counted_as};

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

/// The bounds of an exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RungBounds {
    /// How many clients.
    pub clients: u8,
    /// How often each may get the lock; after a refusal, it retries any number of times.
    pub rounds: u8,
    /// How many ticks pass.
    pub horizon: Tick,
    /// How many clients may die.
    pub crashes: u8,
    /// How many replies may be lost.
    pub losses: u8,
    /// How many commands or replies may be delayed; or [`RungBounds::ANY`].
    pub delays: u8,
    /// Whether a client may abandon a delayed command, which may still arrive.
    pub may_give_up: bool,
    /// How many servers may lose their data.
    pub restarts: u8,
    /// How many clocks may jump.
    pub jumps: u8,
}

impl RungBounds {
    /// No limit.
    pub const ANY: u8 = u8::MAX;

    /// So many clients, each with so many acquisitions, and so many ticks, without faults.
    pub const fn calm(clients: u8, rounds: u8, horizon: Tick) -> Self {
        Self {
            clients,
            rounds,
            horizon,
            crashes: 0,
            losses: 0,
            delays: 0,
            may_give_up: false,
            restarts: 0,
            jumps: 0,
        }
    }

    // A rung names the faults that it adds.

    pub(super) const fn crashes(self, crashes: u8) -> Self {
        Self { crashes, ..self }
    }

    pub(super) const fn losses(self, losses: u8) -> Self {
        Self { losses, ..self }
    }

    pub(super) const fn delays(self, delays: u8) -> Self {
        Self { delays, ..self }
    }

    pub(super) const fn restarts(self, restarts: u8) -> Self {
        Self { restarts, ..self }
    }

    pub(super) const fn jumps(self, jumps: u8) -> Self {
        Self { jumps, ..self }
    }

    /// A client may abandon a delayed command.
    pub(super) const fn given_up(self) -> Self {
        Self {
            may_give_up: true,
            ..self
        }
    }
}

impl fmt::Display for RungBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = counted(self.clients.into(), "client");
        let acquisitions = counted(self.rounds.into(), "acquisition");
        // A horizon is never negative.
        let ticks = counted(usize::try_from(self.horizon).unwrap_or_default(), "tick");
        write!(f, "{clients} with {acquisitions} each, {ticks}")?;
        for (most, one, more) in [
            (self.crashes, "crash", "crashes"),
            (self.losses, "lost reply", "lost replies"),
            (
                self.delays,
                "delayed command or answer",
                "delayed commands or answers",
            ),
            (self.restarts, "empty restart", "empty restarts"),
            (self.jumps, "clock jump", "clock jumps"),
        ] {
            match most {
                0 => {}
                Self::ANY => write!(f, ", any {one}")?,
                _ => write!(f, ", {}", counted_as(most.into(), one, more))?,
            }
        }
        if self.may_give_up {
            write!(f, ", given up or not")?;
        }
        Ok(())
    }
}

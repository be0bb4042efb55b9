//! The rungs, from the most obvious recipe to those that hold. A test compares each stated violation with the model's result.
//! Each names the bounds of its exploration, as each printed verdict does.

mod one_server;
mod quorum;
mod redlock;
mod timestamp;

use std::fmt;

use super::program::{CLIENTS, Program};
use super::property::LadderProperty;
use super::redis::{Key, RedisCommand, Tick, Value};
use crate::text::{counted, counted_as};

static ALL: [&Rung; 26] = [
    &one_server::SETNX_DEL,
    &one_server::MULTI,
    &one_server::THEN_EXPIRE,
    &one_server::SET_EX_DEL,
    &one_server::GET_DEL,
    &timestamp::DEL_SETNX,
    &timestamp::SKEW,
    &timestamp::DELAYED,
    &timestamp::DEL,
    &timestamp::CHECK_DEL,
    &timestamp::NO_OWNER,
    &one_server::LUA,
    &one_server::STALE_WRITE,
    &one_server::LOST_UPDATE,
    &one_server::FENCED,
    &one_server::ORPHAN,
    &redlock::PLAIN,
    &redlock::RESTART,
    &redlock::CLOCK_JUMP,
    &redlock::LATE_VALIDITY,
    &quorum::PLAIN,
    &quorum::RESTART,
    &quorum::CLOCK_JUMP,
    &quorum::NO_QUARANTINE,
    &quorum::EARLY_COUNTER,
    &quorum::NO_CERTIFICATE,
];

/// All rungs, from the lowest.
pub fn all() -> &'static [&'static Rung] {
    &ALL
}

/// The rung of this name.
pub fn find(name: &str) -> Option<&'static Rung> {
    all().iter().find(|rung| rung.name == name).copied()
}

/// The TTL of the lock in all rungs; without one, how long others are prepared to wait for a dead client.
pub const TTL: Tick = 2;

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
    pub fn at_first(self, highest: i16) -> Vec<RedisCommand> {
        match self {
            Self::Empty => Vec::new(),
            Self::LearnsFirst => vec![
                RedisCommand::SetNxPx(Value::Nobody, TTL),
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

    /// How far the clock of a client is ahead, if it is.
    pub(super) fn ahead(&self, client: u8) -> Option<Tick> {
        let ahead = self.skew.get(usize::from(client)).copied();
        ahead.filter(|ahead| *ahead != 0)
    }

    /// By how much the clients' clocks differ.
    pub fn spread(&self) -> Tick {
        let [one, two, three] = self.skew;
        one.max(two).max(three) - one.min(two).min(three)
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
    /// How many faults of each kind there may be; or [`RungBounds::ANY`].
    pub faults: Faults,
    /// Whether a client may abandon a delayed command, which may still arrive.
    pub may_give_up: bool,
}

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A client dies.
    Crash,
    /// A reply is lost.
    Loss,
    /// A command or a reply is delayed.
    Delay,
    /// A server loses its data.
    Restart,
    /// A server's clock jumps.
    Jump,
}

/// A number for each kind of fault.
pub type Faults = [u8; 5];

/// What the numbers of [`Faults`] count.
const COUNTED: [(&str, &str); 5] = [
    ("crash", "crashes"),
    ("lost reply", "lost replies"),
    ("delayed command or answer", "delayed commands or answers"),
    ("empty restart", "empty restarts"),
    ("clock jump", "clock jumps"),
];

impl RungBounds {
    /// No limit.
    pub const ANY: u8 = u8::MAX;

    /// So many clients, each with so many acquisitions, and so many ticks, without faults.
    pub const fn calm(clients: u8, rounds: u8, horizon: Tick) -> Self {
        Self {
            clients,
            rounds,
            horizon,
            faults: [0; 5],
            may_give_up: false,
        }
    }

    /// With at most so many faults of a kind.
    #[must_use]
    pub const fn with(mut self, fault: Fault, most: u8) -> Self {
        self.faults[fault as usize] = most;
        self
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
        for (most, (one, more)) in self.faults.into_iter().zip(COUNTED) {
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

//! A trace that a model has found, step by step: `show` prints and draws it, and `replay` executes it on a real server. A client
//! counts as a holder by its own clock.

use super::redis::{Key, RedisCommand, Reply, Tick, Value};
use super::rungs::Rung;

/// A trace, from an empty server to the violation.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The rung.
    pub rung: &'static Rung,
    /// The number of clients, including those without a step in it.
    pub clients: u8,
    /// The steps, in order.
    pub lines: Vec<Line>,
}

/// One step.
#[derive(Debug, Clone)]
pub struct Line {
    /// Ticks since the beginning, after the step.
    pub time: Tick,
    /// The event.
    pub event: LadderEvent,
    /// The client's conclusion, for people: `acquired`, `believes it expired`, `released`; empty if there is none.
    pub note: String,
    /// The values of each server's keys after the step, with their remaining TTLs.
    pub keys: Vec<Vec<(Key, Value, Option<Tick>)>>,
    /// The clients that hold the lock now, as each believes by its own clock, without crashed ones.
    pub holders: Vec<u8>,
    /// Why a property is violated here, in one sentence.
    pub wrong: Option<String>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LadderEvent {
    /// Time advances to this tick.
    Tick,
    /// A client sends a command, or a server executes it.
    Message(LadderMessage),
    /// A client takes a local step: it reads its clock, works, or gives up.
    Does {
        /// The client.
        client: u8,
        /// The step, for people: `checks its deadline`.
        what: &'static str,
    },
    /// A client crashes.
    Crashes {
        /// The client.
        client: u8,
    },
    /// A server restarts without its data.
    Restarts {
        /// The server.
        server: u8,
        /// The commands that it executes before it serves clients again.
        first: Vec<RedisCommand>,
    },
    /// A server ends its quarantine.
    Rejoins {
        /// The server.
        server: u8,
        /// The commands that it executes.
        last: Vec<RedisCommand>,
    },
    /// A server's clock jumps ahead by so many ticks.
    ClockJumps {
        /// The server.
        server: u8,
        /// The size of the jump.
        by: Tick,
    },
}

/// A command in a story. It is sent and executed in one event; a delayed one has an event for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LadderMessage {
    /// The client.
    pub client: u8,
    /// The server.
    pub server: u8,
    /// The command.
    pub command: RedisCommand,
    /// The reply; `None` while the command is on its way.
    pub reply: Option<Reply>,
    /// Whether it was delayed, and arrives.
    pub is_late: bool,
    /// The client does not receive the reply: it is lost or delayed, or the client has given up meanwhile.
    pub is_lost: bool,
}

impl LadderEvent {
    /// The command, if a client sends one or a server executes it.
    pub(super) const fn message(&self) -> Option<LadderMessage> {
        match self {
            Self::Message(message) => Some(*message),
            _ => None,
        }
    }

    /// Client, server, command and reply, if a command was executed.
    pub(super) fn carried_out(&self) -> Option<(u8, u8, RedisCommand, Reply)> {
        let it = self.message()?;
        Some((it.client, it.server, it.command, it.reply?))
    }

    /// The acting client.
    pub(super) const fn actor(&self) -> Option<u8> {
        match self {
            Self::Message(LadderMessage { client, .. })
            | Self::Does { client, .. }
            | Self::Crashes { client } => Some(*client),
            _ => None,
        }
    }
}

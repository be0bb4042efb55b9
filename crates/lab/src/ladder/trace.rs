//! A story that a model has found, step by step: what `show` prints and draws and `replay` plays on a real server. Must never
//! say more than happened: who holds is what the clients believe by their own clocks.

use super::redis::{Key, RedisCommand, Reply, Tick, Value};

/// A story, from an empty server to the line where it goes wrong.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The name of the rung.
    pub rung: &'static str,
    /// How many clients there are, also those that do nothing in it.
    pub clients: u8,
    /// How many servers.
    pub servers: u8,
    /// What happened, in this order.
    pub lines: Vec<Line>,
}

/// One step.
#[derive(Debug, Clone)]
pub struct Line {
    /// Ticks since the beginning, after the step.
    pub time: Tick,
    /// What happened.
    pub event: LadderEvent,
    /// What the client concluded from it, for people: `acquired`, `believes it expired`, `released`; empty if nothing is to be said.
    pub note: String,
    /// What stands in the keys of each server after the step, with what is left of its TTL.
    pub keys: Vec<Vec<(Key, Value, Option<Tick>)>>,
    /// The clients that hold the lock now, as each believes by its own clock; those that have crashed do not.
    pub holders: Vec<u8>,
    /// Why it goes wrong here, in one sentence.
    pub wrong: Option<String>,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LadderEvent {
    /// Time passes: it is now so late.
    Tick,
    /// A client sends a command and has its reply, all in one step.
    Asks {
        /// Which client.
        client: u8,
        /// Which server.
        server: u8,
        /// What it sends.
        command: RedisCommand,
        /// What it is answered.
        reply: Reply,
        /// The reply never reached it.
        lost: bool,
    },
    /// A client sends a command, which does not arrive yet.
    Sends {
        /// Which client.
        client: u8,
        /// Which server.
        server: u8,
        /// What it sends.
        command: RedisCommand,
    },
    /// The command that a client sent before arrives, and is answered.
    Arrives {
        /// Which client.
        client: u8,
        /// Which server.
        server: u8,
        /// What it had sent.
        command: RedisCommand,
        /// What it is answered.
        reply: Reply,
        /// The client does not hear it: it has given up meanwhile, or the answer takes its time.
        lost: bool,
    },
    /// A client does something of its own: looks at its clock, works, gives up.
    Does {
        /// Which client.
        client: u8,
        /// What, for people: `checks its deadline`.
        what: &'static str,
    },
    /// A client dies.
    Crashes {
        /// Which client.
        client: u8,
    },
    /// A server dies and comes back without its data.
    Restarts {
        /// Which server.
        server: u8,
    },
    /// A server's clock jumps ahead by so many ticks.
    ClockJumps {
        /// Which server.
        server: u8,
        /// How far.
        by: Tick,
    },
}

/// Client, server, command and reply, if a command was carried out.
pub(super) fn carried_out(event: &LadderEvent) -> Option<(u8, u8, RedisCommand, Reply)> {
    match *event {
        LadderEvent::Asks {
            client,
            server,
            command,
            reply,
            ..
        }
        | LadderEvent::Arrives {
            client,
            server,
            command,
            reply,
            ..
        } => Some((client, server, command, reply)),
        _ => None,
    }
}

//! The state of a rung's model: the servers, the clients, the messages in flight. It has only fields that a property or a
//! program uses, since each field multiplies the states.

use super::program::{CLIENTS, Memory};
use super::redis::{ModelServer, RedisCommand, Reply, Tick};
use super::rungs::{Faults, Rung};

/// The most servers.
pub const SERVERS: usize = 4;

/// The state at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LadderState {
    /// Ticks since the beginning.
    pub time: Tick,
    /// The servers.
    pub servers: [ModelServer; SERVERS],
    /// How far the clock of each server has jumped ahead.
    pub jumped: [Tick; SERVERS],
    /// When the quarantine of each server is over that waits for it.
    pub away_until: [Option<Tick>; SERVERS],
    /// The clients.
    pub clients: [LadderClient; CLIENTS],
    /// The faults so far.
    pub spent: Faults,
    /// The last client that took the lock, and when. Only if [`super::property::LadderProperty::Recovery`] is checked.
    pub taken: Option<(u8, Tick)>,
    /// How often the lock was taken. Only if [`super::property::LadderProperty::StaleWrite`] is checked, as is the next field.
    pub turns: u8,
    /// The number of the hold in which the last accepted write was computed.
    pub written: u8,
    /// How many holds were older than that of an accepted write, at most: they had begun before it was asked for.
    pub older: u8,
    /// The highest fence of a hold. Only if [`super::property::LadderProperty::FenceOrder`] is checked.
    pub highest_fence: i16,
    /// The properties that the last step violated, a bit each.
    pub wrong: u8,
}

/// A client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LadderClient {
    /// The memory of its program.
    pub memory: Memory,
    /// When it crashed.
    pub crashed: Option<Tick>,
    /// Its command in flight, while it waits for the reply.
    pub flight: Option<Flight>,
    /// Its abandoned command, which may still arrive.
    pub late: Option<Flight>,
    /// The number of its hold.
    pub turn: u8,
    /// How many holds had begun when it asked for its own.
    pub older: u8,
    /// The highest fence of these holds.
    pub older_fence: i16,
}

/// A command in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flight {
    /// The server.
    pub server: u8,
    /// The command.
    pub command: RedisCommand,
    /// The client's clock when it was sent.
    pub sent: Tick,
    /// The number of the hold in which it was computed.
    pub turn: u8,
    /// How many holds had begun when that hold was asked for.
    pub older: u8,
    /// The reply, once the command is executed and the reply is in flight.
    pub reply: Option<Reply>,
}

impl LadderState {
    /// Empty servers, and clients at their beginning.
    pub fn new() -> Self {
        let mut state = Self::default();
        for (client, slot) in (0..).zip(&mut state.clients) {
            slot.memory = Memory::new(client, 0);
        }
        state
    }

    /// The time of a client's clock.
    pub fn clock(&self, rung: &Rung, client: u8) -> Tick {
        self.time + rung.skew[client as usize]
    }

    /// The time of a server's clock.
    pub fn server_clock(&self, server: u8) -> Tick {
        self.time + self.jumped[server as usize]
    }

    /// The clients that hold the lock, as each believes by its own clock. A client that has sent its release does not count.
    pub fn holders<'a>(&'a self, rung: &'a Rung) -> impl Iterator<Item = u8> + 'a {
        (0..).zip(&self.clients).filter_map(|(client, it)| {
            let is_in_time = it.memory.is_in_time(self.clock(rung, client));
            let releases = it.flight.is_some_and(|flight| flight.command.is_release());
            (it.crashed.is_none() && !releases && is_in_time).then_some(client)
        })
    }
}

//! One moment of a rung: the servers, the clients, what is on its way between them. Must never hold what no property and no
//! program looks at: each such field multiplies the states.

use std::hash::{Hash, Hasher};

pub use super::program::CLIENTS;
use super::program::Memory;
use super::redis::{ModelServer, RedisCommand, Reply, Tick};
use super::rungs::Rung;

/// At most so many servers.
pub const SERVERS: usize = 3;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LadderState {
    /// Ticks since the beginning.
    pub time: Tick,
    /// How many of the servers there are.
    pub server_count: u8,
    /// How many of the clients there are.
    pub client_count: u8,
    /// The servers.
    pub servers: [ModelServer; SERVERS],
    /// How far the clock of each has jumped ahead.
    pub jumped: [Tick; SERVERS],
    /// The clients.
    pub clients: [LadderClient; CLIENTS],
    /// What has gone wrong so far.
    pub spent: Spent,
    /// Who took the lock last, and when. Only where [`super::property::Property::Recovery`] is asked.
    pub taken: Option<(u8, Tick)>,
    /// How often the lock was taken. Only where [`super::property::Property::StaleWrite`] is asked, as the next.
    pub turns: u8,
    /// In which turn the last write was computed that the resource took.
    pub written: u8,
    /// The properties that the last step broke, a bit each.
    pub wrong: u8,
}

/// A client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LadderClient {
    /// What it remembers.
    pub memory: Memory,
    /// When it died.
    pub crashed: Option<Tick>,
    /// What it has sent, while it waits for the answer.
    pub flight: Option<Flight>,
    /// What it has sent and given up; it may arrive yet.
    pub late: Option<Flight>,
    /// In which turn it took the lock.
    pub turn: u8,
}

/// A command on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flight {
    /// Where to.
    pub server: u8,
    /// What.
    pub command: RedisCommand,
    /// What its client's clock said when it was sent.
    pub sent: Tick,
    /// In which turn it was computed.
    pub turn: u8,
    /// What it was answered, once it is carried out and the answer is under way.
    pub reply: Option<Reply>,
}

/// How many faults there were, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    /// Clients that died.
    pub crashes: u8,
    /// Replies that were lost.
    pub losses: u8,
    /// Commands that took their time.
    pub delays: u8,
    /// Servers that lost their data.
    pub restarts: u8,
    /// Clocks that jumped.
    pub jumps: u8,
}

impl LadderState {
    /// Empty servers, and clients that have done nothing.
    pub fn new(clients: u8, servers: u8) -> Self {
        let mut state = Self {
            time: 0,
            server_count: servers,
            client_count: clients,
            servers: [ModelServer::default(); SERVERS],
            jumped: [0; SERVERS],
            clients: [LadderClient::default(); CLIENTS],
            spent: Spent::default(),
            taken: None,
            turns: 0,
            written: 0,
            wrong: 0,
        };
        for (client, slot) in (0..).zip(&mut state.clients) {
            slot.memory = Memory::new(client, 0);
        }
        state
    }

    /// What a client's clock says.
    pub fn clock(&self, rung: &Rung, client: u8) -> Tick {
        self.time + rung.skew[client as usize]
    }

    /// What a server's clock says.
    pub fn server_clock(&self, server: u8) -> Tick {
        self.time + self.jumped[server as usize]
    }

    /// The clients that hold the lock, as each believes by its own clock. Who has sent its release relies on it no longer.
    pub fn holders<'a>(&'a self, rung: &'a Rung) -> impl Iterator<Item = u8> + 'a {
        (0..self.client_count).filter(|&client| {
            let it = &self.clients[client as usize];
            let is_in_time = |until| until > self.clock(rung, client);
            let releases = it.flight.is_some_and(|flight| flight.command.is_release());
            it.crashed.is_none() && !releases && it.memory.holds_until.is_some_and(is_in_time)
        })
    }
}

/// Only of the servers and clients that there are.
impl Hash for LadderState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.time.hash(hasher);
        for server in 0..self.server_count as usize {
            self.servers[server].hash(hasher);
            self.jumped[server].hash(hasher);
        }
        for client in &self.clients[..self.client_count as usize] {
            client.hash(hasher);
        }
        self.spent.hash(hasher);
        self.taken.hash(hasher);
        [self.turns, self.written, self.wrong].hash(hasher);
    }
}

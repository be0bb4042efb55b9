//! The program of a rung's client, as a function of its memory: no clock, no network, no randomness. The model runs it in every
//! interleaving.

use std::fmt::Debug;

use super::redis::{RedisCommand, Reply, Tick, Value};

/// The next action of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Send this command to this server.
    Ask(u8, RedisCommand),
    /// Take a local step, with a name for people. Other events may happen before and after it.
    Do(&'static str),
    /// Nothing more.
    Rest,
}

/// A client's memory. Each program defines the meaning of the fields, except `holds_until`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The client, from 0.
    pub client: u8,
    /// The point in its program; 0 at the beginning.
    pub at: u8,
    /// How often it has begun an acquisition.
    pub nth: u8,
    /// Until when it believes to hold the lock, by its own clock; `None` if it does not. [`FOR_EVER`] without a deadline.
    pub holds_until: Option<Tick>,
    /// Other data: a value that it read, its fence, a version, a count of servers.
    pub kept: [i16; 5],
}

impl Memory {
    /// The memory of a client that begins its nth acquisition.
    pub fn new(client: u8, nth: u8) -> Self {
        Self {
            client,
            nth,
            ..Self::default()
        }
    }

    /// The value that its acquisition writes into the lock, for rungs that distinguish owners.
    pub fn token(&self) -> Value {
        Value::Owner(self.client, self.nth)
    }

    /// Whether it holds the lock by this clock.
    pub fn is_in_time(&self, clock: Tick) -> bool {
        self.holds_until.is_some_and(|until| until > clock)
    }

    /// The nth of so many servers that it asks. Each client begins with another one.
    pub fn server(&self, nth: u8, of: u8) -> u8 {
        (nth + self.client) % of
    }

    /// Continues at this point of its program.
    pub fn go(&mut self, at: u8, note: &'static str) -> &'static str {
        self.at = at;
        note
    }

    /// It believes to hold the lock until then, and continues at this point.
    pub fn acquire(&mut self, until: Tick, at: u8) -> &'static str {
        self.holds_until = Some(until);
        self.go(at, "acquired")
    }

    /// As [`Memory::acquire`], unless the reply came too late; it continues at this point anyway.
    pub fn acquire_in_time(&mut self, until: Tick, clock: Tick, at: u8) -> &'static str {
        if until > clock {
            self.acquire(until, at)
        } else {
            self.go(at, "too late")
        }
    }

    /// Begins again. A refused acquisition leaves nothing behind, so it may keep its token.
    pub fn retry(&mut self) -> &'static str {
        *self = Self::new(self.client, self.nth);
        "refused"
    }

    /// It no longer relies on the lock, and has finished.
    pub fn rest(&mut self, note: &'static str) -> &'static str {
        *self = Self::new(self.client, self.nth);
        self.go(AT_REST, note)
    }
}

/// The most clients.
pub const CLIENTS: usize = 3;

/// The last point of every program.
pub const AT_REST: u8 = u8::MAX;

/// The deadline of a hold that only a release ends.
pub const FOR_EVER: Tick = Tick::MAX;

/// The end of a request, by the client's clock.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// When it was sent.
    pub sent: Tick,
    /// The time now.
    pub clock: Tick,
    /// The reply. `None` if the client stops waiting for it: then the command may or may not be executed.
    pub reply: Option<Reply>,
}

/// The program of each client of a rung. A client at rest without the lock may begin again, with the next [`Memory::nth`]; the
/// runner of the program decides.
pub trait Program: Debug + Sync {
    /// The next action. `clock` is the client's own.
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent;

    /// It has taken the step that [`Intent::Do`] named. Returns its conclusion, for people.
    fn done(&self, memory: &mut Memory, clock: Tick) -> &'static str {
        let _ = (memory, clock);
        ""
    }

    /// Its request has ended. Returns its conclusion from a reply, for people.
    fn answered(&self, memory: &mut Memory, answer: Answer) -> &'static str;

    /// The fence of its hold, for the rungs that promise an order of fences.
    fn fence(&self, memory: &Memory) -> Option<i16> {
        let _ = memory;
        None
    }
}

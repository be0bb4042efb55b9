//! What a client of a rung does, as a program without a clock, a network or chance of its own. Must never look at anything but
//! what its client can know: the model runs it in every interleaving, and `race` runs the same on a real server.

use std::fmt::Debug;

use super::redis::{RedisCommand, Reply, Tick, Value};

/// What a client wants to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Send this command to this server.
    Ask(u8, RedisCommand),
    /// Do something of its own, with a name for people; anything may happen before and after it.
    Do(&'static str),
    /// Nothing more.
    Rest,
}

/// What a client remembers. Each program gives the fields its own meaning, but `holds_until`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Which client, from 0.
    pub client: u8,
    /// Where it is in its program; 0 at the beginning.
    pub at: u8,
    /// How often it has begun an acquisition.
    pub nth: u8,
    /// Until when it believes it holds the lock, by its own clock; `None` if it does not. [`FOR_EVER`] without a deadline.
    pub holds_until: Option<Tick>,
    /// What else it has to keep: a value that it read, its fence, a version, a count of servers.
    pub kept: [i16; 3],
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

    /// What its acquisition writes into the lock, where a rung tells owners apart.
    pub fn token(&self) -> Value {
        Value::Owner(self.client, self.nth)
    }

    /// It goes on at this point of its program.
    pub fn go(&mut self, at: u8, note: &'static str) -> &'static str {
        self.at = at;
        note
    }

    /// It believes that it holds the lock until then, and goes on at this point.
    pub fn acquire(&mut self, until: Tick, at: u8) -> &'static str {
        self.holds_until = Some(until);
        self.go(at, "acquired")
    }

    /// As [`Memory::acquire`], unless the answer came too late; it goes on at this point all the same.
    pub fn acquire_in_time(&mut self, until: Tick, clock: Tick, at: u8) -> &'static str {
        if until > clock {
            self.acquire(until, at)
        } else {
            self.go(at, "too late")
        }
    }

    /// It begins once more. A refused acquisition leaves nothing behind, so it may keep its token.
    pub fn retry(&mut self) -> &'static str {
        *self = Self::new(self.client, self.nth);
        "refused"
    }

    /// It relies on the lock no longer, and has nothing more to do.
    pub fn rest(&mut self, note: &'static str) -> &'static str {
        *self = Self::new(self.client, self.nth);
        self.go(AT_REST, note)
    }
}

/// At most so many clients.
pub const CLIENTS: usize = 3;

/// Where every program ends.
pub const AT_REST: u8 = u8::MAX;

/// A hold that nothing ends but a release.
pub const FOR_EVER: Tick = Tick::MAX;

/// The program of each client of a rung. Once at rest without the lock, a client may begin anew, with the next
/// [`Memory::nth`]: whoever runs the program decides.
pub trait Program: Debug + Sync {
    /// What it does next. `clock` is the client's own.
    fn intent(&self, memory: &Memory, clock: Tick) -> Intent;

    /// It has done what [`Intent::Do`] named. Returns what it concludes, for people.
    fn done(&self, memory: &mut Memory, clock: Tick) -> &'static str {
        let _ = (memory, clock);
        ""
    }

    /// Its command was answered. `sent` is what its clock said when it sent it. Returns what it concludes, for people.
    fn answered(&self, memory: &mut Memory, sent: Tick, clock: Tick, reply: Reply) -> &'static str;

    /// It gives up waiting for an answer; the command may or may not be carried out. `sent` as above.
    fn unanswered(&self, memory: &mut Memory, sent: Tick, clock: Tick);
}

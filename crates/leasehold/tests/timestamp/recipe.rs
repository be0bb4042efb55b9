//! A plain client of the recipe on Redis' page of `SETNX`. It does not use Leasehold.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::timestamp::Unit;
use testkit::{RedisServer, RespConn, ServerClock};

/// The clock of a client.
enum Time {
    Server(ServerClock),
    Real,
}

pub(crate) struct Plain {
    connection: RespConn,
    unit: Unit,
    time: Time,
}

impl Plain {
    /// A client with the server's clock.
    pub(crate) fn new(server: &RedisServer, unit: Unit) -> Self {
        Self {
            connection: server.connection(),
            unit,
            time: Time::Server(server.clock()),
        }
    }

    /// A client with this host's clock.
    pub(crate) fn in_real_time(server: &RedisServer, unit: Unit) -> Self {
        Self {
            connection: server.connection(),
            unit,
            time: Time::Real,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        match &self.time {
            Time::Server(clock) => self.unit.at(clock.now()),
            Time::Real => {
                let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                self.unit.at(u64::try_from(passed.as_micros()).unwrap())
            }
        }
    }

    /// Takes the lock for `timeout` units, and returns its deadline.
    pub(crate) fn lock(&mut self, key: &str, timeout: u64) -> Option<u64> {
        let deadline = (self.now() + timeout + 1).to_string();
        let taken = self.connection.command(&["SETNX", key, &deadline]);
        if taken.int() == 1 {
            return deadline.parse().ok();
        }
        let seen = self.connection.command(&["GET", key]);
        if seen.is_nil() || !self.has_passed(&seen.text()) {
            return None;
        }
        self.take_over(key, timeout)
    }

    /// The second half of the recipe. The client has seen that a deadline passed, perhaps long ago, and takes the lock over.
    pub(crate) fn take_over(&mut self, key: &str, timeout: u64) -> Option<u64> {
        let deadline = (self.now() + timeout + 1).to_string();
        let before = self.connection.command(&["GETSET", key, &deadline]);
        let won = before.is_nil() || self.has_passed(&before.text());
        won.then(|| deadline.parse().unwrap())
    }

    /// Frees the lock, if its own deadline has not passed.
    pub(crate) fn unlock(&mut self, key: &str, deadline: u64) {
        if self.now() < deadline {
            self.connection.command(&["DEL", key]);
        }
    }

    fn has_passed(&self, deadline: &str) -> bool {
        deadline.parse::<u64>().unwrap() < self.now()
    }
}

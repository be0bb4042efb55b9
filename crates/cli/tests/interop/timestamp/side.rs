//! The peers in Rust, as separate processes: Leasehold, with scripts and without, and a plain client of the
//! recipe. See [`crate::peer`].

use std::env;
use std::io::{self, Write};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::Error;
use leasehold::blocking::{Client, TimestampHold, TimestampLock};
use leasehold::timestamp::Unit;
use testkit::RespConn;

/// The argument that makes this program one of the peers.
pub(crate) const WORD: &str = "timestamp-side";

/// The process of `who`: `leasehold`, `leasehold-without-scripts` or `plain`.
pub(crate) fn command(who: &str, port: u16, unit: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([WORD, who, &port.to_string(), unit]);
    command
}

/// Serves requests until stdin ends.
pub(crate) fn run(who: &str, port: u16, unit: &str) {
    let unit = if unit == "ms" {
        Unit::Millis
    } else {
        Unit::Seconds
    };
    if who == "plain" {
        obey(&mut Plain::new(port, unit), port);
    } else {
        let url = format!("redis://127.0.0.1:{port}/");
        let mut leasehold = LeaseholdSide {
            client: Client::connect(&url).unwrap(),
            unit,
            by_script: who == "leasehold",
            hold: None,
        };
        obey(&mut leasehold, port);
    }
}

trait Side {
    fn take(&mut self, name: &str, ttl: Duration, wait: bool) -> bool;

    /// Releases the lock. Returns true if it was still held, as far as the client can know.
    fn release(&mut self) -> bool;
}

/// A Leasehold client and its lock.
struct LeaseholdSide {
    client: Client,
    unit: Unit,
    by_script: bool,
    hold: Option<TimestampHold>,
}

impl LeaseholdSide {
    fn lock(&self, name: &str, ttl: Duration) -> TimestampLock {
        let lock = self.client.timestamp_lock(name);
        let lock = lock.map(|lock| lock.ttl(ttl).unit(self.unit));
        if self.by_script {
            lock
        } else {
            lock.map(leasehold::TimestampLock::without_scripts)
        }
    }
}

impl Side for LeaseholdSide {
    fn take(&mut self, name: &str, ttl: Duration, wait: bool) -> bool {
        let lock = self.lock(name, ttl);
        self.hold = if wait {
            Some(lock.acquire().unwrap())
        } else {
            lock.try_acquire().unwrap()
        };
        self.hold.is_some()
    }

    fn release(&mut self) -> bool {
        let hold = self.hold.take().unwrap();
        match hold.release() {
            Ok(()) => true,
            Err(Error::Lost(_)) => false,
            Err(other) => panic!("{other}"),
        }
    }
}

/// The recipe of Redis' `SETNX` page, with this host's clock.
struct Plain {
    server: RespConn,
    unit: Unit,
    name: String,
    deadline: u64,
}

impl Plain {
    fn new(port: u16, unit: Unit) -> Self {
        Self {
            server: RespConn::connect(port),
            unit,
            name: String::new(),
            deadline: 0,
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a foreign client has a clock of its own"
    )]
    fn now(&self) -> u64 {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        self.unit.at(u64::try_from(passed.as_micros()).unwrap())
    }

    fn has_passed(&self, deadline: &str) -> bool {
        deadline.parse::<u64>().unwrap() < self.now()
    }

    fn attempt(&mut self, name: &str, ttl: Duration) -> bool {
        let timeout = self.unit.whole(ttl);
        name.clone_into(&mut self.name);
        self.deadline = self.now() + timeout + 1;
        let deadline = self.deadline.to_string();
        if self.server.command(&["SETNX", name, &deadline]).int() == 1 {
            return true;
        }
        let seen = self.server.command(&["GET", name]);
        if seen.is_nil() || !self.has_passed(&seen.text()) {
            return false;
        }
        self.deadline = self.now() + timeout + 1;
        let deadline = self.deadline.to_string();
        let before = self.server.command(&["GETSET", name, &deadline]);
        before.is_nil() || self.has_passed(&before.text())
    }
}

impl Side for Plain {
    fn take(&mut self, name: &str, ttl: Duration, wait: bool) -> bool {
        loop {
            let held = self.attempt(name, ttl);
            if held || !wait {
                return held;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn release(&mut self) -> bool {
        let ahead = self.now() < self.deadline;
        if ahead {
            self.server.command(&["DEL", &self.name]);
        }
        ahead
    }
}

fn obey(side: &mut impl Side, port: u16) {
    let answer = |text: &str| {
        println!("{text}");
        io::stdout().flush().unwrap();
    };
    answer(concat!("ready ", env!("CARGO_PKG_VERSION")));
    let ttl = |millis: &str| Duration::from_millis(millis.parse().unwrap());
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let counted;
        answer(match words[..] {
            ["try", name, millis] if side.take(name, ttl(millis), false) => "held",
            ["wait", name, millis] if side.take(name, ttl(millis), true) => "held",
            ["try", ..] => "busy",
            ["release"] if side.release() => "released",
            ["release"] => "lost",
            ["count", name, millis, turns] => {
                let lost = count(side, port, name, ttl(millis), turns.parse().unwrap());
                counted = format!("counted, {lost} lost");
                &counted
            }
            _ => panic!("{line:?}"),
        });
    }
}

/// Reads, adds one and writes, in separate commands. Returns the number of releases that found another deadline
/// in the key.
fn count(side: &mut impl Side, port: u16, name: &str, ttl: Duration, turns: u64) -> usize {
    let mut server = RespConn::connect(port);
    let mut lost = 0;
    for _ in 0..turns {
        // Not as a Leasehold waiter, which polls each 50 ms and would lose against the others.
        while !side.take(name, ttl, false) {
            thread::sleep(Duration::from_millis(1));
        }
        let seen = server.command(&["GET", "count"]);
        let seen = if seen.is_nil() { 0 } else { seen.int() };
        server.command(&["SET", "count", &(seen + 1).to_string()]);
        lost += usize::from(!side.release());
    }
    lost
}

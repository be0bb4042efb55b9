//! A server of its own, one foreign program, and us. Must never wait for a fixed time where there is an event to wait for.

use std::env;
use std::process::Command;
use std::time::Duration;

use leasehold::{Clock, Moment};
use serde_json::Value;
use testkit::{RedisServer, eventually};

use crate::foreign::Foreign;
use crate::peer::Peer;
use crate::side;

/// The lock of all stories.
pub(crate) const NAME: &str = "orders";

/// How much later than it should a process of this machine may be.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

const PLENTY: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    pub(crate) foreign: &'static Foreign,
}

impl Scene {
    pub(crate) fn new(foreign: &'static Foreign) -> Self {
        Self {
            server: RedisServer::start(),
            foreign,
        }
    }

    /// A process with our library that shares keys with the foreign one.
    pub(crate) fn ours(&self) -> Peer {
        Peer::start(&side::command(
            "ours",
            self.server.port(),
            self.foreign.template,
        ))
    }

    /// A process with the foreign library.
    pub(crate) fn theirs(&self) -> Peer {
        Peer::start(&self.foreign.command(self.server.port()))
    }

    pub(crate) fn key(&self) -> String {
        self.foreign.key(NAME)
    }

    /// The value of the lock's key, which must be there.
    pub(crate) fn value(&self) -> Vec<u8> {
        self.server.cli(&["GET", &self.key()]).bytes().to_vec()
    }

    pub(crate) fn is_free(&self) -> bool {
        self.server.cli(&["EXISTS", &self.key()]).int() == 0
    }

    /// Waits until one of ours is in line.
    pub(crate) fn ours_waits(&self) {
        let queue = format!("{{{}}}:lh-queue", self.key());
        eventually(PLENTY, "ours is in line", || {
            self.server.cli(&["ZCARD", &queue]).int() == 1
        });
    }

    /// Tells a peer to wait, and returns when it has asked for the lock and was refused.
    pub(crate) fn starts_to_wait(&self, peer: &mut Peer, ttl: Duration) {
        let before = self.requests();
        peer.tell(&format!("wait {NAME} {}", ttl.as_millis()));
        eventually(PLENTY, "it has asked", || self.requests() > before);
    }

    /// How often anybody has asked for a lock, by whatever command. Ours asks only while it waits.
    pub(crate) fn requests(&self) -> u64 {
        let stats = self.server.cli(&["INFO", "commandstats"]).text();
        let calls = |line: &str| -> Option<u64> {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let asks = ["set", "eval", "evalsha", "exists"].contains(&command);
            asks.then(|| rest.split(',').next().unwrap().parse().unwrap())
        };
        stats.lines().filter_map(calls).sum()
    }

    /// What `leasehold inspect` says of the lock.
    pub(crate) fn inspect(&self) -> Value {
        inspect(&self.server, self.foreign.template)
    }
}

/// What `leasehold inspect` says of the lock on this server.
pub(crate) fn inspect(server: &RedisServer, template: &str) -> Value {
    let done = unconfigured(env!("CARGO_BIN_EXE_leasehold"))
        .args(["inspect", "--json", "--url", &server.url()])
        .args(["--key-template", template, NAME])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    report["locks"][0].clone()
}

/// A program, without the settings of ours that whoever runs the tests may have.
pub(crate) fn unconfigured(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") || name == "REDIS_URL" {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}

/// `words`, with milliseconds for people.
pub(crate) fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

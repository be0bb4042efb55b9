//! A scene: a server, a foreign program and Leasehold. Waits for events, never for a fixed time.

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

/// The tolerance for delays of this machine. A client that waited for the end of a lease, or polled seldom, would be later.
pub(crate) const SLACK: Duration = Duration::from_secs(10);

/// The rest of the lease of a killed holder, whose end the other side waits for. Set from outside, so no request must come in time.
pub(crate) const EXPIRES_SOON: Duration = Duration::from_secs(1);

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

    /// A process with Leasehold that uses the keys of the foreign library.
    pub(crate) fn leasehold_peer(&self) -> Peer {
        Peer::start(&side::command(
            "leasehold",
            self.server.port(),
            self.foreign.template,
        ))
    }

    /// A process with the foreign library.
    pub(crate) fn foreign_peer(&self) -> Peer {
        Peer::start(&self.foreign.command(self.server.port()))
    }

    pub(crate) fn key(&self) -> String {
        self.foreign.key(NAME)
    }

    /// The value of the lock's key, which must exist.
    pub(crate) fn value(&self) -> Vec<u8> {
        self.server.cli(&["GET", &self.key()]).bytes().to_vec()
    }

    /// Lets the lock's lease end soon, which has an end. The holder is dead, or does not know.
    pub(crate) fn expires_soon(&self) {
        assert!(self.server.cli(&["PTTL", &self.key()]).int() > 0);
        let rest = EXPIRES_SOON.as_millis().to_string();
        self.server.cli(&["PEXPIRE", &self.key(), &rest]);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.server.cli(&["EXISTS", &self.key()]).int() == 0
    }

    /// Waits until a Leasehold client is in the queue.
    pub(crate) fn leasehold_waits(&self) {
        let queue = format!("{{{}}}:lh-queue", self.key());
        eventually(PLENTY, "Leasehold is in line", || {
            self.server.cli(&["ZCARD", &queue]).int() == 1
        });
    }

    /// Tells a peer to wait, and returns after its first refused request.
    pub(crate) fn starts_to_wait(&self, peer: &mut Peer, ttl: Duration) {
        let before = self.requests();
        peer.tell(&format!("wait {NAME} {}", ttl.as_millis()));
        eventually(PLENTY, "it has asked", || self.requests() > before);
    }

    /// The number of requests for a lock. Leasehold sends them only while it waits.
    pub(crate) fn requests(&self) -> u64 {
        requests(&self.server)
    }

    /// The output of `leasehold inspect` for the lock.
    pub(crate) fn inspect(&self) -> Value {
        inspect(&self.server.url(), self.foreign.template, NAME)
    }
}

/// The number of requests for a lock that this server got, by any command.
pub(crate) fn requests(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).text();
    let calls = |line: &str| -> Option<u64> {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let asks = ["set", "eval", "evalsha", "exists"].contains(&command);
        asks.then(|| rest.split(',').next().unwrap().parse().unwrap())
    };
    stats.lines().filter_map(calls).sum()
}

/// The output of `leasehold inspect` for a lock of this URL.
pub(crate) fn inspect(url: &str, template: &str, name: &str) -> Value {
    let done = unconfigured(env!("CARGO_BIN_EXE_leasehold"))
        .args(["inspect", "--json", "--url", url])
        .args(["--key-template", template, name])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    report["locks"][0].clone()
}

/// A command without the Leasehold settings of the user who runs the tests.
pub(crate) fn unconfigured(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") || name == "REDIS_URL" {
            command.env_remove(name);
        }
    }
    command
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        // By default it is 2 s, and a busy machine may stall for longer.
        .env("LEASEHOLD_REQUEST_TIMEOUT", "60s");
    command
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}

/// A duration in milliseconds.
pub(crate) fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

//! The two peers in Rust, as separate processes: Leasehold and rslock. See [`crate::peer`].

use std::env;
use std::io::{self, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use leasehold::{Client, Error, blocking};
use rslock::{LockError, LockManager};
use testkit::{Reply, RespConn};
use tokio::runtime::{Builder, Runtime};

use crate::servers::Servers;

/// The argument that makes this program one of the peers.
pub(crate) const WORD: &str = "side";

/// The process of `who`: `leasehold` or `rslock`.
pub(crate) fn command(who: &str, servers: impl Into<Servers>, template: &str) -> Command {
    let [nodes, counter] = servers.into().args();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([WORD, who, &nodes, &counter, template]);
    command
}

trait Side {
    /// Takes the lock. Returns true on success, and always if it waits.
    fn take(&mut self, name: &str, ttl: Duration, wait: bool) -> bool;

    /// Releases the lock. Returns true if it was still held.
    fn release(&mut self) -> bool;
}

/// Leasehold, which never takes a lock without a TTL.
struct LeaseholdSide {
    client: blocking::Client,
    lease: Option<blocking::Lease>,
}

impl Side for LeaseholdSide {
    fn take(&mut self, name: &str, ttl: Duration, wait: bool) -> bool {
        let lock = self.client.mutex(name).map(|mutex| mutex.ttl(ttl));
        self.lease = if wait {
            Some(lock.acquire().unwrap())
        } else {
            lock.try_acquire().unwrap()
        };
        self.lease.is_some()
    }

    fn release(&mut self) -> bool {
        match self.lease.take().unwrap().release() {
            Ok(()) => true,
            // No majority confirms it.
            Err(Error::Lost(_) | Error::Store(_)) => false,
            Err(other) => panic!("{other}"),
        }
    }
}

struct Rslock {
    manager: LockManager,
    runtime: Runtime,
    lock: Option<rslock::Lock>,
}

impl Side for Rslock {
    fn take(&mut self, name: &str, ttl: Duration, wait: bool) -> bool {
        loop {
            match self
                .runtime
                .block_on(self.manager.lock(name.as_bytes(), ttl))
            {
                Ok(lock) => {
                    self.lock = Some(lock);
                    return true;
                }
                Err(LockError::Unavailable) if wait => {}
                Err(LockError::Unavailable) => return false,
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn release(&mut self) -> bool {
        let lock = self.lock.take().unwrap();
        self.runtime.block_on(self.manager.unlock(&lock));
        true
    }
}

/// Serves requests until stdin ends.
pub(crate) fn run(who: &str, servers: &Servers, template: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    if who == "leasehold" {
        let builder = Client::builder().key_template(template);
        let client = runtime.block_on(builder.connect(&servers.url())).unwrap();
        let client = client.into();
        obey(
            &mut LeaseholdSide {
                client,
                lease: None,
            },
            servers,
            template,
            env!("CARGO_PKG_VERSION"),
        );
    } else {
        let mut manager = LockManager::new(servers.urls());
        manager.set_retry(3, Duration::from_millis(10));
        let lock = None;
        obey(
            &mut Rslock {
                manager,
                runtime,
                lock,
            },
            servers,
            template,
            "0.10.0",
        );
    }
}

fn obey(side: &mut impl Side, servers: &Servers, template: &str, version: &str) {
    let answer = |text: &str| {
        println!("{text}");
        io::stdout().flush().unwrap();
    };
    answer(&format!("ready {version}"));
    let ttl = |millis: &str| Duration::from_millis(millis.parse().unwrap());
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let done = match words[..] {
            ["try", name, millis] => side.take(name, ttl(millis), false),
            ["wait", name, millis] => side.take(name, ttl(millis), true),
            ["release"] => {
                answer(if side.release() { "released" } else { "lost" });
                continue;
            }
            ["count", name, millis, turns, who] => {
                let signal = (template == "lock:{}").then(|| format!("lock-signal:{name}"));
                let mut counter = Counter::of(side, servers, who, signal);
                for turn in 0..turns.parse().unwrap() {
                    if !counter.count(name, ttl(millis)) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(1 + turn % 4));
                }
                answer("counted");
                continue;
            }
            _ => panic!("{line:?}"),
        };
        answer(if done { "held" } else { "busy" });
    }
}

/// The counter: reads, adds one and writes, in separate commands.
struct Counter<'a, S: Side> {
    side: &'a mut S,
    server: RespConn,
    who: &'a str,
    mine: i64,
    is_quorum: bool,
    /// The list that python-redis-lock waits on. Its own release pushes to it, as the documentation asks for
    /// after a release by Leasehold.
    signal: Option<String>,
}

impl<'a, S: Side> Counter<'a, S> {
    fn of(side: &'a mut S, servers: &Servers, who: &'a str, signal: Option<String>) -> Self {
        Self {
            side,
            is_quorum: servers.nodes.len() > 1,
            server: RespConn::connect(servers.counter),
            who,
            mine: 0,
            signal,
        }
    }

    /// One turn; false when the key `enough` exists.
    fn count(&mut self, name: &str, ttl: Duration) -> bool {
        self.side.take(name, ttl, true);
        let keys = ["MGET", "count", "last", "changes", "enough"];
        let read = self.server.command(&keys);
        let goes_on = read.array()[3].is_nil();
        if goes_on {
            self.add_one(&read);
        }
        // A release is not confirmed if the node with the deciding vote has just ended. The counter shows whether that did
        // harm.
        assert!(
            self.side.release() || self.is_quorum,
            "lost while it counted"
        );
        if let Some(signal) = &self.signal {
            self.server.command(&["RPUSH", signal, "1"]);
            self.server.command(&["PEXPIRE", signal, "1000"]);
        }
        goes_on
    }

    fn add_one(&mut self, read: &Reply) {
        let number = |at: usize| read.array()[at].text_or_zero();
        let is_new = i64::from(read.array()[1].is_nil() || read.array()[1].text() != self.who);
        self.mine += 1;
        let (key, mine) = (format!("by:{}", self.who), self.mine.to_string());
        let (count, changes) = (
            (number(0) + 1).to_string(),
            (number(2) + is_new).to_string(),
        );
        let wrote = self.server.command(&[
            "MSET", "count", &count, "last", self.who, "changes", &changes, &key, &mine,
        ]);
        assert_eq!(wrote.text(), "OK");
    }
}

trait Number {
    fn text_or_zero(&self) -> i64;
}

impl Number for Reply {
    fn text_or_zero(&self) -> i64 {
        if self.is_nil() {
            0
        } else {
            self.text().parse().unwrap()
        }
    }
}

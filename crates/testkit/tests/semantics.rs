//! The server's promises for the commands that all locks are built on, each on a key that is present, absent, of another type,
//! and at its expiry. No lock of this project is involved.
//!
//! Runs on the installed server, and on each that a variable `REDIS_SERVER_BIN_<name>` names, which must exist. The clock is
//! virtual, so an expiry is exact, except in the test about time within a script.

#![cfg(target_os = "linux")]

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use leasehold_testkit::{RedisServer, Reply, ServerClock};

const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// The available servers, by name. The installed one has no path.
fn servers() -> Vec<(String, Option<PathBuf>)> {
    let named = env::vars()
        .filter(|(name, path)| name.starts_with("REDIS_SERVER_BIN_") && !path.is_empty())
        .map(|(name, path)| (name, Some(PathBuf::from(path))));
    [("installed".to_owned(), None)]
        .into_iter()
        .chain(named)
        .collect()
}

/// Runs `story` on every available server; the output names the one on which it failed.
fn on_each_server(story: fn(&Server)) {
    for (name, path) in servers() {
        let server = Server::start(path);
        println!("on {name}: {}", server.version());
        story(&server);
    }
}

/// The harness captures the output of passing tests, so this writes to stderr directly.
#[test]
fn skipped_servers_are_named() {
    let servers = servers();
    for (name, path) in &servers {
        let is_there = path.as_ref().is_none_or(|path| path.exists());
        assert!(is_there, "{name} names {path:?}, which is not there");
    }
    if servers.len() == 1 {
        let says = "SKIPPED older and newer servers: no REDIS_SERVER_BIN_<name> names one; scripts/test installs them\n";
        io::stderr().write_all(says.as_bytes()).expect("stderr");
    }
}

struct Server {
    server: RedisServer,
    clock: ServerClock,
}

impl Server {
    fn start(binary: Option<PathBuf>) -> Self {
        let mut builder = RedisServer::builder().virtual_clock();
        if let Some(binary) = binary {
            builder = builder.binary(binary);
        }
        let server = builder.start();
        let clock = server.clock();
        clock.set(clock.now() / 1000 * 1000);
        let server = Self { server, clock };
        server.sees_the_time();
        server
    }

    fn version(&self) -> String {
        let info = self.server.cli(&["INFO", "server"]).text();
        let line = info.lines().find(|line| line.starts_with("redis_version:"));
        line.expect("a version").to_owned()
    }

    /// The reply, in readable form.
    fn says(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        shown(&self.server.cli(&words))
    }

    /// The reply of compare-and-delete.
    fn delete(&self, value: &str) -> String {
        shown(
            &self
                .server
                .cli(&["EVAL", COMPARE_AND_DELETE, "1", "k", value]),
        )
    }

    /// The replies to the commands of one `MULTI`, as `EXEC` returns them.
    fn exec(&self, lines: &[&str]) -> Vec<String> {
        let mut connection = self.server.connection();
        assert_eq!(connection.command(&["MULTI"]).text(), "OK");
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(connection.command(&words).text(), "QUEUED");
        }
        connection
            .command(&["EXEC"])
            .array()
            .iter()
            .map(shown)
            .collect()
    }

    fn wait(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
        self.sees_the_time();
    }

    /// Valkey 9 reads the time again after a real millisecond, and adds it to the last value. So this waits for one; since the
    /// virtual clock is at whole milliseconds, the added part does not show.
    fn sees_the_time(&self) {
        thread::sleep(Duration::from_millis(2));
        let time = self.server.cli(&["TIME"]);
        let part = |at: usize| u64::try_from(time.array()[at].int()).expect("after 1970");
        let millis = part(0) * 1000 + part(1) / 1000;
        assert_eq!(millis, self.clock.now() / 1000);
    }

    /// Tries each line on a key that `make` created, and then compares the key's value.
    #[track_caller]
    fn table(&self, rows: &[(&str, &str, &str, &str)]) {
        for (make, line, reply, then) in rows {
            self.says("DEL k");
            if !make.is_empty() {
                let made = self.says(make);
                assert!(!made.starts_with("error"), "{make}: {made}");
            }
            assert_eq!(self.says(line), *reply, "{line} after {make:?}");
            assert_eq!(
                self.says("GET k"),
                *then,
                "{line} after {make:?}, the value"
            );
        }
    }
}

/// `nil`, a number, a text, or the first word of an error.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "nil".into(),
        Reply::Int(number) => number.to_string(),
        Reply::Err(text) => format!("error {}", text.split(' ').next().unwrap_or_default()),
        other => other.text(),
    }
}

const WRONG: &str = "error WRONGTYPE";

#[test]
fn setnx_takes_an_absent_key_and_refuses_any_type() {
    on_each_server(|server| {
        server.table(&[
            ("", "SETNX k v", "1", "v"),
            ("SET k old", "SETNX k v", "0", "old"),
            ("HSET k f 1", "SETNX k v", "0", WRONG),
        ]);
        // SETNX keeps the TTL of the old key, and sets none itself.
        server.says("SET k old PX 100");
        assert_eq!(server.says("SETNX k v"), "0");
        assert_eq!(server.says("PTTL k"), "100");
        server.wait(101);
        assert_eq!(server.says("SETNX k v"), "1");
        assert_eq!(server.says("PTTL k"), "-1");
    });
}

#[test]
fn getset_answers_the_old_value_and_takes_the_end_away() {
    on_each_server(|server| {
        server.table(&[
            ("", "GETSET k v", "nil", "v"),
            ("SET k old", "GETSET k v", "old", "v"),
            ("HSET k f 1", "GETSET k v", WRONG, WRONG),
        ]);
        server.says("DEL k");
        server.says("SET k old PX 100");
        assert_eq!(server.says("GETSET k v"), "old");
        assert_eq!(server.says("PTTL k"), "-1");
        server.says("SET k old PX 100");
        server.wait(101);
        assert_eq!(server.says("GETSET k v"), "nil");
    });
}

#[test]
fn set_nx_sets_value_and_end_in_one_step_or_nothing() {
    on_each_server(|server| {
        server.table(&[
            ("", "SET k v NX PX 100", "OK", "v"),
            ("", "SET k v NX EX 1", "OK", "v"),
            ("SET k old", "SET k v NX PX 100", "nil", "old"),
            ("HSET k f 1", "SET k v NX PX 100", "nil", WRONG),
            ("", "SET k v NX PX 0", "error ERR", "nil"),
            ("", "SET k v NX EX -1", "error ERR", "nil"),
            // Without NX it overwrites a key of any type.
            ("HSET k f 1", "SET k v PX 100", "OK", "v"),
        ]);
        for (line, ttl) in [("SET k v NX PX 100", 100), ("SET k v NX EX 2", 2000)] {
            server.says("DEL k");
            assert_eq!(server.says(line), "OK");
            assert_eq!(server.says("PTTL k"), ttl.to_string());
            assert_eq!(server.says("SET k other NX PX 5000"), "nil");
            assert_eq!(
                server.says("PTTL k"),
                ttl.to_string(),
                "a loser changes no end"
            );
            // Held until the millisecond before its expiry, free one after it.
            server.wait(ttl - 1);
            assert_eq!(server.says("SET k other NX PX 100"), "nil");
            server.wait(2);
            assert_eq!(server.says("SET k other NX PX 100"), "OK");
        }
    });
}

#[test]
fn expire_sets_a_ttl_on_a_key_of_any_type() {
    on_each_server(|server| {
        server.table(&[
            ("", "PEXPIRE k 100", "0", "nil"),
            ("SET k v", "PEXPIRE k 100", "1", "v"),
            ("SET k v", "EXPIRE k 1", "1", "v"),
            ("HSET k f 1", "PEXPIRE k 100", "1", WRONG),
            // A time in the past expires at once.
            ("SET k v", "EXPIRE k 0", "1", "nil"),
            ("SET k v", "PEXPIRE k -1", "1", "nil"),
        ]);
        server.says("SET k v PX 100");
        server.wait(101);
        assert_eq!(
            server.says("PEXPIRE k 100"),
            "0",
            "what has ended is absent"
        );
        assert_eq!(server.says("PTTL k"), "-2");
    });
}

#[test]
fn multi_setnx_expire_lets_a_loser_extend_the_winners_lock() {
    on_each_server(|server| {
        let recipe = ["SETNX k v", "PEXPIRE k 100"];
        assert_eq!(server.exec(&recipe), ["1", "1"]);
        assert_eq!(server.says("PTTL k"), "100");
        // The loser of SETNX still sets a new TTL on the winner's key: EXEC does not depend on replies.
        server.wait(60);
        assert_eq!(server.exec(&["SETNX k other", "PEXPIRE k 100"]), ["0", "1"]);
        assert_eq!(
            (server.says("GET k"), server.says("PTTL k")),
            ("v".into(), "100".into())
        );
        server.wait(101);
        assert_eq!(server.exec(&recipe), ["1", "1"]);
        // An error in the middle undoes nothing.
        server.says("DEL k");
        server.says("HSET k f 1");
        assert_eq!(
            server.exec(&["SETNX k v", "GETSET k v", "PEXPIRE k 100"]),
            ["0", WRONG, "1"]
        );
        assert_eq!(server.says("PTTL k"), "100");
    });
}

#[test]
fn compare_and_delete_deletes_the_owners_value_only() {
    on_each_server(|server| {
        assert_eq!(server.delete("v"), "0");
        server.says("SET k v PX 100");
        assert_eq!(server.delete("other"), "0");
        assert_eq!(server.says("PTTL k"), "100");
        assert_eq!(server.delete("v"), "1");
        assert_eq!(server.says("EXISTS k"), "0");
        // At its expiry it is free, also for its owner.
        server.says("SET k v PX 100");
        server.wait(101);
        assert_eq!(server.delete("v"), "0");
        // A key of another type gives an error, and stays.
        server.says("HSET k f 1");
        assert!(server.delete("v").starts_with("error"));
        assert_eq!(server.says("EXISTS k"), "1");
    });
}

/// A script runs at one moment: a key present when it begins is present when it ends, even if its TTL has passed meanwhile.
/// This uses the server's real clock; a virtual one would prove nothing.
#[test]
fn key_present_when_a_script_begins_lasts_until_its_end() {
    const READS: &str = "local before = redis.call('get', KEYS[1]) if before == false then return 'late' end \
                         for i = 1, tonumber(ARGV[1]) do end local after = redis.call('get', KEYS[1]) \
                         return before == after and after ~= false and 'same' or 'gone'";
    for (name, path) in servers() {
        let mut builder = RedisServer::builder();
        if let Some(path) = path {
            builder = builder.binary(path);
        }
        let server = builder.start();
        let mut turns: u64 = 1_000_000;
        let mut attempts = 0;
        loop {
            attempts += 1;
            assert!(attempts < 100, "{name}: no end after {turns} turns");
            server.cli(&["SET", "k", "v", "PX", "40"]);
            let said = server.cli(&["EVAL", READS, "1", "k", &turns.to_string()]);
            let has_ended = server.cli(&["EXISTS", "k"]).int() == 0;
            match said.text().as_str() {
                "same" if has_ended => break,
                // The script was over before the key expired.
                "same" => turns *= 2,
                "late" => {}
                other => panic!("{name}: {other} after {turns} turns"),
            }
        }
    }
}

//! The steps of the timestamp section of `docs/migrating.md`: at each step the previous program and the new one
//! run side by side.

use std::process::{Command, Stdio};

use testkit::RedisServer;

use super::{ATTEMPT, NAME, side};
use crate::Tale;
use crate::peer::Peer;
use crate::scene::unconfigured;

pub(crate) const STORIES: &[Tale] = &[("migrating timestamps_and_getset", timestamps_and_getset)];

/// The mutex that replaces the old lock.
const NEW: &str = "orders-2";

const TIMESTAMP: [&str; 3] = ["--protocol", "timestamp", NAME];
const MUTEX: [&str; 1] = [NEW];

/// A program with several locks, as nested `leasehold run` commands.
struct Program<'a> {
    url: String,
    locks: &'a [&'a [&'a str]],
}

impl Program<'_> {
    fn words(&self, option: &[&str]) -> Vec<String> {
        let runs = self.locks.iter().flat_map(|lock| {
            let start = [
                env!("CARGO_BIN_EXE_leasehold"),
                "run",
                "-q",
                "--url",
                &self.url,
            ];
            let words = [&start, option, lock, &["--"]].concat();
            words.into_iter().map(str::to_owned).collect::<Vec<_>>()
        });
        runs.collect()
    }

    fn command(&self, option: &[&str], work: &[&str]) -> Command {
        let words = self.words(option);
        let mut command = unconfigured(&words[0]);
        command.args(&words[1..]).args(work);
        command
    }

    /// Starts to work, until it reads a line.
    fn work(&self) -> Peer {
        let work = ["sh", "-c", "echo ready 1; read line; echo out"];
        Peer::start(&self.command(&[], &work))
    }

    /// True if the program can get its locks now.
    fn may_work(&self) -> bool {
        let mut command = self.command(&["--try"], &["true"]);
        let status = command.stdin(Stdio::null()).status().expect("it runs");
        match status.code() {
            Some(0) => true,
            Some(75) => false,
            other => panic!("{other:?}"),
        }
    }
}

/// Checks that both programs exclude each other.
fn exclude(one: &Program, two: &Program) {
    for (holder, other) in [(one, two), (two, one)] {
        let mut working = holder.work();
        assert!(!other.may_work());
        assert_eq!(working.ask("end"), "out");
        working.end();
        assert!(other.may_work());
    }
}

fn timestamps_and_getset() -> String {
    let server = RedisServer::start();
    let program = |locks| Program {
        url: server.url(),
        locks,
    };
    let mut old = Peer::start(&side::command("plain", server.port(), "s"));
    let mut old_excludes = |new: &Program| {
        assert_eq!(old.ask(ATTEMPT), "held");
        assert!(!new.may_work());
        assert_eq!(old.ask("release"), "released");
        let mut working = new.work();
        assert_eq!(old.ask(ATTEMPT), "busy");
        assert_eq!(working.ask("end"), "out");
        working.end();
        assert_eq!(old.ask(ATTEMPT), "held");
        assert_eq!(old.ask("release"), "released");
    };

    // Before: a mutex on the same key waits without end for an expired timestamp that a crash left behind.
    let same_key: [&[&str]; 1] = [&[NAME]];
    server.cli(&["SET", NAME, "1500000000"]);
    assert!(!program(&same_key).may_work());
    server.cli(&["DEL", NAME]);

    // 1. The timestamp protocol replaces the old programs one by one.
    let first: [&[&str]; 1] = [&TIMESTAMP];
    let first = program(&first);
    old_excludes(&first);
    exclude(&first, &first);
    server.cli(&["SET", NAME, "1500000000"]);
    assert!(first.may_work());

    // 2. A mutex with another name is nested inside. A forgotten old program is still excluded.
    let second: [&[&str]; 2] = [&TIMESTAMP, &MUTEX];
    let second = program(&second);
    old_excludes(&second);
    exclude(&first, &second);
    exclude(&second, &second);

    // 3. When every program has both locks, the timestamp lock is removed.
    let third: [&[&str]; 1] = [&MUTEX];
    let third = program(&third);
    exclude(&second, &third);
    exclude(&third, &third);
    // The mutex must not be removed before: programs without it do not respect it.
    let mut working = first.work();
    assert!(third.may_work());
    assert_eq!(working.ask("end"), "out");
    working.end();
    String::new()
}

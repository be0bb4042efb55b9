//! A server, and processes that share a cache on it. Dropping the fleet ends the processes.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use testkit::{RedisServer, eventually};

use crate::process::{ANSWER, PLACE};
use crate::source::Source;

/// A time limit that only a fault reaches, also on a busy machine.
pub(crate) const PLENTY: Duration = Duration::from_secs(60);

pub(crate) struct Fleet {
    pub(crate) processes: Vec<Member>,
    pub(crate) server: RedisServer,
    pub(crate) source: Source,
    _folder: TempDir,
}

/// One process of a fleet.
pub(crate) struct Member {
    child: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
}

/// The reply of a process: numbers by name.
pub(crate) type Told = BTreeMap<String, u64>;

/// The sum over several answers.
pub(crate) fn total(told: &[Told], name: &str) -> u64 {
    told.iter().filter_map(|told| told.get(name)).sum()
}

impl Fleet {
    pub(crate) fn start(processes: usize) -> Self {
        Self::of(RedisServer::start(), processes)
    }

    pub(crate) fn of(server: RedisServer, processes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |_| Member::start(&folder, &server.url());
        let mut processes: Vec<_> = (0..processes).map(start).collect();
        for process in &mut processes {
            process.answer();
        }
        Self {
            processes,
            source: Source::new(folder.path()),
            server,
            _folder: folder,
        }
    }

    /// Sends an order to all processes at once, and returns their replies.
    pub(crate) fn all(&mut self, order: &str) -> Vec<Told> {
        self.begin(order);
        self.end()
    }

    pub(crate) fn begin(&mut self, order: &str) {
        for process in &mut self.processes {
            process.order(order);
        }
    }

    pub(crate) fn end(&mut self) -> Vec<Told> {
        self.processes.iter_mut().map(Member::answer).collect()
    }

    /// Sends an order to the first process only.
    pub(crate) fn one(&mut self, order: &str) -> Told {
        self.processes[0].order(order);
        self.processes[0].answer()
    }

    /// Lets the first process load `key`, and waits until the server has stored it. The loader has the value earlier than the server.
    pub(crate) fn store(&mut self, key: &str, settings: &str) {
        let stored = |fleet: &Self| fleet.commands().get("set").copied().unwrap_or_default();
        let before = stored(self);
        let told = self.one(&format!("offer key={key} callers=1 {settings}"));
        assert_eq!(told.get("loaded"), Some(&1), "{told:?}");
        eventually(PLENTY, "it is stored", || stored(self) > before);
    }

    /// The number of runs of each command, in scripts too.
    pub(crate) fn commands(&self) -> BTreeMap<String, u64> {
        let info = self.server.cli(&["INFO", "commandstats"]).text();
        let counted = info.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), calls))
        });
        counted.filter(|(name, _)| name != "info").collect()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.server.cli(&["KEYS", "*"]);
        keys.array().iter().map(testkit::Reply::text).collect()
    }

    /// Checks that every key has a TTL.
    #[track_caller]
    pub(crate) fn assert_nothing_stays(&self) {
        for key in self.keys() {
            let left = self.server.cli(&["PTTL", &key]).int();
            assert_ne!(left, -1, "{key} has no end");
        }
    }
}

/// The number of clients that wait for `key`, as the server knows them.
pub(crate) fn waiters(server: &RedisServer, key: &str) -> usize {
    let control = server.cli(&["HKEYS", &format!("{{{key}}}:lh-cache")]);
    let fields = control.array().iter();
    fields
        .filter(|field| field.text().starts_with("w:"))
        .count()
}

impl Member {
    fn start(folder: &TempDir, url: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("this test"))
            .args(["--exact", "a_process_of_the_fleet", "--nocapture"])
            .env(PLACE, folder.path())
            .env("LEASEHOLD_FLEET_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can be run");
        let orders = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Self {
            child,
            orders,
            lines,
        }
    }

    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the process lives");
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> Told {
        loop {
            let mut line = String::new();
            let read = self
                .lines
                .read_line(&mut line)
                .expect("it answers with text");
            assert!(read > 0, "a process of the fleet has ended");
            let Some(answer) = line.trim_end().strip_prefix(ANSWER) else {
                continue;
            };
            return serde_json::from_str(answer).expect("numbers by name");
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

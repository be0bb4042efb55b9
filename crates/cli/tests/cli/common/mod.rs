//! Helpers of all tests: stores, and `leasehold run` as a process.

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "what most tests need is Linux'")
)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests drive real processes in real time"
)]

mod collected;
#[cfg(target_os = "linux")]
pub(crate) mod pty;
#[cfg(target_os = "linux")]
pub(crate) mod users;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
pub(crate) use testkit::rows;
use testkit::{RedisServer, Reply, eventually};

use self::collected::{Collected, collect};

/// The command.
pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// A time limit that only a fault reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// The time limit of a request. By default it is 2 s, and a busy machine may stall for longer.
pub(crate) const UNHURRIED: &str = "60s";

/// The store of a test, and a directory for its files.
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) dir: TempDir,
    pub(crate) redis: Option<RedisServer>,
    /// The servers of a quorum; empty for another store.
    pub(crate) quorum: Vec<RedisServer>,
    /// For `--request-timeout`.
    request_timeout: &'static str,
}

impl Store {
    fn new(url: String, dir: TempDir) -> Self {
        Self {
            url,
            dir,
            redis: None,
            quorum: Vec::new(),
            request_timeout: UNHURRIED,
        }
    }

    fn at(url: String) -> Self {
        Self::new(url, tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn local() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self::new(format!("local:{}/locks.db", dir.path().display()), dir)
    }

    /// A server with a password, which is part of the URL.
    pub(crate) fn with_password() -> Self {
        let server = RedisServer::builder().password("S3CR3T").start();
        Self {
            url: format!("redis://:S3CR3T@127.0.0.1:{}/", server.port()),
            ..Self::on(server)
        }
    }

    pub(crate) fn redis() -> Self {
        Self::on(RedisServer::start())
    }

    pub(crate) fn on(server: RedisServer) -> Self {
        let url = server.url();
        Self {
            redis: Some(server),
            ..Self::at(url)
        }
    }

    /// A server that the test lets fall silent. Its clients do not wait for an answer as long as those of other tests.
    pub(crate) fn silent_at_times() -> Self {
        Self {
            request_timeout: "6s",
            ..Self::redis()
        }
    }

    /// Three servers that vote at once.
    pub(crate) fn quorum() -> Self {
        let store = Self::quorum_without_marks();
        store.leasehold("quorum init").is(0, &[]);
        store
    }

    /// Three new servers.
    pub(crate) fn quorum_without_marks() -> Self {
        let quorum: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
        let hosts = quorum
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()));
        let hosts: Vec<String> = hosts.collect();
        let url = format!("redis+quorum://{}/?max_ttl=24h", hosts.join(","));
        Self {
            quorum,
            ..Self::at(url)
        }
    }

    pub(crate) fn server(&self) -> &RedisServer {
        self.redis.as_ref().expect("a store on Redis")
    }

    /// The URL, as in a command to paste.
    pub(crate) fn pasted_url(&self) -> String {
        if self.url.contains('?') {
            format!("'{}'", self.url)
        } else {
            self.url.clone()
        }
    }

    /// The path of a file of the test.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until a script has made a file.
    pub(crate) fn until(&self, name: &str) {
        eventually(LIMIT, name, || self.file(name).exists());
    }

    /// Creates a file that a script waits for.
    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.file(name), "").expect("write a file");
    }

    /// The number that a script wrote to a file.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let mut number = None;
        eventually(LIMIT, name, || {
            number = fs::read_to_string(self.file(name))
                .ok()
                .and_then(|text| text.trim().parse().ok());
            number.is_some()
        });
        number.expect("a number")
    }

    /// `leasehold run --url URL words...`, in the directory of the test.
    pub(crate) fn run(&self, words: &(impl Words + ?Sized)) -> Run {
        self.verb("run", words)
    }

    /// `leasehold run --url URL words... sh -c SCRIPT`.
    pub(crate) fn script(&self, words: &str, script: &str) -> Run {
        self.run(words).words(&["sh", "-c", script])
    }

    /// `leasehold VERB --url URL words...`, in the directory of the test.
    pub(crate) fn verb(&self, verb: &str, words: &(impl Words + ?Sized)) -> Run {
        Run::verb(self.dir.path(), verb)
            .words(&["--url", &self.url])
            .env("LEASEHOLD_REQUEST_TIMEOUT", self.request_timeout)
            .words(words)
    }

    /// `leasehold words...`, with the store in its environment.
    pub(crate) fn leasehold(&self, words: &(impl Words + ?Sized)) -> Run {
        let run = Run::of(self.dir.path(), &words.list());
        run.env("LEASEHOLD_URL", &self.url)
            .env("LEASEHOLD_REQUEST_TIMEOUT", self.request_timeout)
    }

    /// A program in the directory of the test, with `leasehold` on its path and nothing set.
    pub(crate) fn program(&self, words: &(impl Words + ?Sized)) -> Run {
        let mut run = Run::program(self.dir.path(), &words.list());
        self.surround(&mut run.command);
        run
    }

    /// Gives a command the environment of [`Store::program`].
    pub(crate) fn surround(&self, command: &mut Command) {
        let programs = Path::new(LEASEHOLD).parent().expect("a folder");
        let path = std::env::var("PATH").expect("a path");
        without_settings(command);
        command
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("TMPDIR", self.dir.path())
            .env("XDG_CONFIG_HOME", self.file("config"))
            .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED);
    }

    /// What `leasehold VERB --json words...` writes. It ends with `code`.
    #[track_caller]
    pub(crate) fn json(&self, verb: &str, words: &(impl Words + ?Sized), code: i32) -> Value {
        let run = self.verb(verb, "--json").words(words);
        run.is(code, &[]).json()
    }

    /// The lock "x" can be taken at once.
    #[track_caller]
    pub(crate) fn is_free(&self) {
        self.run("-n x true").is(0, &[]);
    }

    /// The lock "x" cannot be taken at once.
    #[track_caller]
    pub(crate) fn is_busy(&self) {
        self.run("-n x true").is(75, &["is busy"]);
    }

    /// The JSON in a file of the test.
    #[track_caller]
    pub(crate) fn document(&self, name: &str) -> Value {
        json(&fs::read_to_string(self.file(name)).expect("a document"))
    }

    /// True if the locks are in a file, where the lock of a dead process is free at once.
    pub(crate) fn is_local(&self) -> bool {
        self.redis.is_none() && self.quorum.is_empty()
    }

    /// The servers with the locks.
    fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        self.redis.iter().chain(&self.quorum)
    }

    /// The lease that is on a lock now ends in this many milliseconds; the next one does not. Set twice: before the second time, the
    /// server has executed all that a stopped client had sent.
    pub(crate) fn ends_in(&self, name: &str, millis: u32) {
        const END: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end";
        let votes: Vec<_> = self.servers().map(|it| it.cli(&["GET", name])).collect();
        let owner = |vote: &Reply| match vote {
            Reply::Str(vote) => vote.split(|byte| *byte == b'#').next().map(<[u8]>::to_vec),
            _ => None,
        };
        let owners: Vec<_> = votes.iter().map(owner).collect();
        let is_holder = |it: &Option<Vec<u8>>| {
            it.is_some() && 2 * owners.iter().filter(|other| *other == it).count() > owners.len()
        };
        let millis = millis.to_string();
        let nodes = self.servers().zip(&votes).zip(&owners);
        let held: Vec<_> = nodes.filter(|(_, owner)| is_holder(owner)).collect();
        for ((server, vote), _) in held.iter().chain(&held) {
            let args = [
                END.as_bytes(),
                b"1",
                name.as_bytes(),
                vote.bytes(),
                millis.as_bytes(),
            ];
            let done = server.cli(&[&[b"EVAL".as_slice()], &args[..]].concat());
            assert!(done.error().is_none(), "{done:?}");
        }
    }

    /// Waits until each server of a quorum has voted for the holder with this fence. Before, a server may show a fence of its own.
    pub(crate) fn all_vote(&self, name: &str, fence: u64) {
        let end = format!("#{fence}");
        eventually(LIMIT, "all votes", || {
            let votes = self.quorum.iter().map(|it| it.cli(&["GET", name]));
            votes.fold(true, |all, vote| {
                all && !vote.is_nil() && vote.text().ends_with(&end)
            })
        });
    }

    /// Waits until the holder of "x" has renewed its lease: more of it is left than a moment ago.
    pub(crate) fn until_renewed(&self) {
        let left = || {
            let done = self.verb("inspect", "--json x").output();
            // On a busy machine the store may answer later than a request may take: then there is no report.
            let report: Value = serde_json::from_str(&done.stdout).ok()?;
            Some(report["locks"][0]["lease_ms"].as_u64().unwrap_or(0))
        };
        let mut least = u64::MAX;
        eventually(LIMIT, "a renewal", || {
            let Some(now) = left() else { return false };
            let is_renewed = now > least.saturating_add(500);
            least = least.min(now);
            is_renewed
        });
    }

    /// A command that holds the lock "x" until [`Store::let_go`], with its fence in the file `fence`.
    pub(crate) fn hold(&self) -> Running {
        let script = "echo $LEASEHOLD_FENCE > fence; while ! [ -e let-go ]; do sleep 0.02; done";
        let holder = self.script("x", script).start();
        self.number("fence");
        holder
    }

    pub(crate) fn let_go(&self) {
        self.touch("let-go");
    }
}

/// Runs the named tests on every store of locks.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        $crate::common::on_each_store_of_entries! { $($test),* }
        mod quorum { $(#[test] fn $test() { super::$test(&$crate::common::Store::quorum()); })* }
    };
}
pub(crate) use on_each_store;

/// Runs the named tests on every store that also keeps cache entries.
macro_rules! on_each_store_of_entries {
    ($($test:ident),* $(,)?) => {
        mod local { $(#[test] fn $test() { super::$test(&$crate::common::Store::local()); })* }
        mod redis { $(#[test] fn $test() { super::$test(&$crate::common::Store::redis()); })* }
    };
}
pub(crate) use on_each_store_of_entries;

/// Ignores the variables of the user who runs the tests. Those that a test sets come later.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") || name == "REDIS_URL" {
            command.env_remove(name);
        }
    }
}

/// The words of a command line: as typed, where no word has a space, or one by one.
pub(crate) trait Words {
    fn list(&self) -> Vec<&str>;
}

impl Words for str {
    fn list(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn list(&self) -> Vec<&str> {
        self.as_str().list()
    }
}

impl Words for [&str] {
    fn list(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn list(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn list(&self) -> Vec<&str> {
        self.clone()
    }
}

#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// A `leasehold run` before its start.
pub(crate) struct Run {
    command: Command,
}

impl Run {
    /// Without a terminal, and with default signal actions, so that the tests behave alike wherever they are
    /// started.
    pub(crate) fn new(directory: &Path) -> Self {
        Self::verb(directory, "run")
    }

    /// A command with another verb.
    pub(crate) fn verb(directory: &Path, verb: &str) -> Self {
        Self::of(directory, &[verb])
    }

    fn of(directory: &Path, words: &[&str]) -> Self {
        Self::program(directory, &[&[LEASEHOLD], words].concat())
    }

    fn program(directory: &Path, words: &[&str]) -> Self {
        let mut command = Command::new("env");
        let signals = "--default-signal=HUP,INT,QUIT,TERM,TSTP,USR1,USR2";
        command.args([signals, "setsid"]).args(words);
        without_settings(&mut command);
        command
            .env("XDG_CONFIG_HOME", directory.join("config"))
            .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { command }
    }

    pub(crate) fn words(mut self, words: &(impl Words + ?Sized)) -> Self {
        self.command.args(words.list());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, stdin: Stdio) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// With its output to another place, where [`Run::spawn`] leaves it.
    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// Starts it, and reads none of its output.
    pub(crate) fn spawn(mut self) -> Child {
        self.command.spawn().expect("it starts")
    }

    /// Its output as bytes.
    pub(crate) fn raw(self) -> Output {
        self.spawn().wait_with_output().expect("its output")
    }

    pub(crate) fn start(self) -> Running {
        let mut child = self.spawn();
        let stdout = collect(child.stdout.take().expect("stdout"));
        let stderr = collect(child.stderr.take().expect("stderr"));
        Running {
            child,
            stdout,
            stderr,
        }
    }

    /// Runs the command to its end.
    pub(crate) fn output(self) -> Done {
        self.start().end()
    }

    /// Runs the command to its end, and checks it as [`Done::is`] does.
    #[track_caller]
    pub(crate) fn is(self, code: i32, words: &[&str]) -> Done {
        self.start().ends(code, words)
    }

    /// Runs the command to its end, which is this code and this stdout.
    #[track_caller]
    pub(crate) fn prints(self, code: i32, stdout: &str) -> Done {
        self.start().prints(code, stdout)
    }

    /// Runs the command to its end. It says nothing on stderr.
    #[track_caller]
    pub(crate) fn says_nothing(self, code: i32) -> Done {
        let done = self.is(code, &[]);
        assert_eq!(done.stderr, "", "{done:?}");
        done
    }
}

/// A running `leasehold run`. Dropping it kills it.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Collected,
    stderr: Collected,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("signal leasehold");
    }

    /// Sends SIGSTOP, and returns when the process has stopped. Inside a transaction on a file of `local:` it goes on first:
    /// all others would wait for it.
    pub(crate) fn stop(&self) {
        loop {
            self.signal(Signal::SIGSTOP);
            let state = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("a child");
            assert!(matches!(state, WaitStatus::Stopped(..)), "{state:?}");
            if !self.writes() {
                return;
            }
            self.signal(Signal::SIGCONT);
        }
    }

    /// Whether it has a file locked for writing: a line is `1: POSIX ADVISORY WRITE PID ...`.
    fn writes(&self) -> bool {
        let pid = self.pid().to_string();
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut locks = locks.lines().map(str::split_whitespace);
        locks.any(|mut words| words.nth(3) == Some("WRITE") && words.next() == Some(&pid))
    }

    /// Its stderr so far.
    pub(crate) fn said(&self) -> String {
        self.stderr.text()
    }

    /// Its stdout so far.
    pub(crate) fn written(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn until_it_writes(&self, text: &str) {
        eventually(LIMIT, &format!("writes {text:?}"), || {
            self.written().contains(text)
        });
    }

    pub(crate) fn until_it_says(&self, text: &str) {
        eventually(LIMIT, &format!("says {text:?}"), || {
            self.said().contains(text)
        });
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("ask for the state").is_some()
    }

    /// Waits for the end, and checks it as [`Done::is`] does.
    #[track_caller]
    pub(crate) fn ends(self, code: i32, words: &[&str]) -> Done {
        let done = self.end();
        done.is(code, words);
        done
    }

    /// Waits for the end, which is this code and this stdout.
    #[track_caller]
    pub(crate) fn prints(self, code: i32, stdout: &str) -> Done {
        let done = self.ends(code, &[]);
        assert_eq!(done.stdout, stdout, "{done:?}");
        done
    }

    /// Waits for the end of the process.
    pub(crate) fn end(mut self) -> Done {
        eventually(LIMIT, "leasehold ends", || self.has_ended());
        let status = self.child.wait().expect("the status");
        // A surviving process may keep the pipes open, so their end does not come for sure.
        eventually(LIMIT, "its last output", || {
            self.stdout.has_all() && self.stderr.has_all()
        });
        Done {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "{} wrote {:?} and said {:?}",
                self.pid(),
                self.written(),
                self.said()
            );
        }
        if !self.has_ended() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// The end of a `leasehold run`.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("no code: {self:?}"))
    }

    /// Checks the exit code, and that stderr contains these words.
    #[track_caller]
    pub(crate) fn is(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code(), code, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        }
        // Each message starts with the program name.
        assert!(
            words.is_empty() || self.stderr.contains("leasehold: "),
            "{self:?}"
        );
    }

    /// Checks that stdout contains these words.
    #[track_caller]
    pub(crate) fn shows(&self, words: &[&str]) {
        for word in words {
            assert!(self.stdout.contains(word), "{word:?} is missing: {self:?}");
        }
    }

    /// The document in its stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        json(&self.stdout)
    }

    /// The duration, below a minute, after these words in stderr.
    #[track_caller]
    pub(crate) fn seconds_after(&self, words: &str) -> f64 {
        let told = self.stderr.split_once(words);
        told.and_then(|(_, rest)| rest.split_once('s')?.0.parse().ok())
            .unwrap_or_else(|| panic!("no seconds after {words:?}: {self:?}"))
    }
}

/// True if a process lives. A zombie does not.
pub(crate) fn lives(pid: u64) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state
        .rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Runs a program of the system.
pub(crate) fn tool(program: &str, words: &[&str]) -> Output {
    Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

//! A server and a folder in which old and new programs record their work. Only the locks decide which program
//! works.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use testkit::{RedisServer, eventually};

use crate::peer::ending_with_us;
use crate::scene::unconfigured;

/// A time limit that no working program reaches, not even on a machine where each start of a shell takes a second.
const PLENTY: Duration = Duration::from_secs(180);

/// The turns of each side when two sides work concurrently.
pub(super) const TURNS: usize = 6;

/// The work, which detects overlaps. `WHO long` works until the file `done` exists.
const WORK: &str = r#"#!/bin/bash
cd "$(dirname "$0")" || exit 1
mkdir busy 2>/dev/null || : >overlap
echo "$1" >>turns
if [ "$2" = long ]; then until [ -e done ]; do sleep 0.01; done; else sleep 0.02; fi
rmdir busy 2>/dev/null
exit 0
"#;

/// The shell functions of old and new programs.
const COMMON: &str = r#"
cli() { redis-cli -p "$PORT" "$@" </dev/null; }
new() { "$LEASEHOLD" run -q --url "redis://127.0.0.1:$PORT/" --config "$DIR/none.toml" "$@"; }
each_turn() { for ((turn = 0; turn < TURNS; turn++)); do "$@" || exit; sleep 0.0$((RANDOM % 5 + 5)); done; }
old_turn() { until take; do sleep 0.01; done; "$DIR/work" old; free; }
"#;

pub(super) struct Rollout {
    pub(super) server: RedisServer,
    folder: TempDir,
}

impl Rollout {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let rollout = Self {
            server: RedisServer::start(),
            folder,
        };
        fs::write(rollout.path("none.toml"), "").expect("a file");
        fs::write(rollout.path("work"), WORK).expect("a file");
        let may_run = fs::Permissions::from_mode(0o755);
        fs::set_permissions(rollout.path("work"), may_run).expect("a mode");
        rollout
    }

    /// The path of a file in the folder.
    pub(super) fn path(&self, file: &str) -> String {
        let path = self.folder.path().join(file);
        path.to_str().expect("UTF-8").to_owned()
    }

    pub(super) fn touch(&self, file: &str) {
        fs::write(self.path(file), "").expect("a file");
    }

    pub(super) fn has(&self, file: &str) -> bool {
        fs::exists(self.path(file)).expect("an answer")
    }

    /// Starts a process that runs the script.
    pub(super) fn begin(&self, script: &str) -> Running {
        let mut bash = unconfigured("bash");
        bash.args(["-c", &[COMMON, script].concat()]);
        bash.env("PORT", self.server.port().to_string())
            .env("DIR", self.path(""))
            .env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"))
            .env("TURNS", TURNS.to_string());
        // Else it would poll for its lock without end.
        let mut bash = ending_with_us(&bash);
        bash.stdin(Stdio::null()).process_group(0);
        Running(Some(bash.spawn().expect("it starts")))
    }

    /// Runs the script to its end, and returns its status.
    pub(super) fn run(&self, script: &str) -> i32 {
        self.begin(script).ends()
    }

    /// Starts a new program that holds the lock until the file `done` exists.
    pub(super) fn leasehold_holds(&self, options: &str) -> Running {
        let before = self.turns().len();
        let leasehold = self.begin(&format!("new {options} lock -- \"$DIR/work\" new long"));
        eventually(PLENTY, "Leasehold works", || self.turns().len() > before);
        leasehold
    }

    /// The workers, in order.
    pub(super) fn turns(&self) -> Vec<String> {
        let turns = fs::read_to_string(self.path("turns")).unwrap_or_default();
        turns.lines().map(str::to_owned).collect()
    }

    /// True if two programs worked at the same time.
    pub(super) fn overlapped(&self) -> bool {
        self.has("overlap")
    }

    /// The TTL of the key in ms; -1: no TTL, -2: no key.
    pub(super) fn left(&self) -> i64 {
        self.server.cli(&["PTTL", "lock"]).int()
    }
}

/// Runs parts of a story in parallel, each with its own server: mostly they wait.
pub(super) fn at_once(parts: &[&(dyn Fn() + Sync)]) {
    thread::scope(|scope| {
        for part in parts {
            scope.spawn(part);
        }
    });
}

/// Lets two programs take turns concurrently, and checks that no turn is lost and that no two overlap.
pub(super) fn exclude_each_other(one: &str, other: &str) {
    let rollout = Rollout::start();
    let both = [one, other].map(|script| rollout.begin(script));
    for side in both {
        assert_eq!(side.ends(), 0, "{one} beside {other}");
    }
    let turns = rollout.turns();
    assert!(!rollout.overlapped(), "two at once: {one} beside {other}");
    assert_eq!(turns.len(), 2 * TURNS, "{turns:?}");
}

/// The script of an old program that works repeatedly, with its own `take` and `free`.
pub(super) fn old(program: &str) -> String {
    format!("{program}\neach_turn old_turn")
}

/// The script of a new program, with options.
pub(super) fn new(options: &str) -> String {
    format!("each_turn new {options} lock -- \"$DIR/work\" new")
}

/// A process with its children. Dropping it kills them all.
pub(super) struct Running(Option<Child>);

impl Running {
    /// Waits for the end and returns the status.
    pub(super) fn ends(mut self) -> i32 {
        let child = self.0.as_mut().expect("it was begun");
        let mut status = None;
        eventually(PLENTY, "its end", || {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        // No process is left to kill, and the process id may be reused.
        self.0 = None;
        status.and_then(|status| status.code()).expect("no signal")
    }

    /// Sends SIGKILL to the whole group.
    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        // Fails if all processes have already ended.
        killpg(group, Signal::SIGKILL).ok();
        child.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

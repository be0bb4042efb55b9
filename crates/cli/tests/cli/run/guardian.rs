//! The command never outlives the lock: whenever the wrapper dies or stops, all of the command is dead before
//! the next holder starts. Left processes of the command keep the lock.

// `setsid`, `env --default-signal` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "real processes in real time")]

use std::fs;
use std::process::Command;

use crate::common::{LIMIT, Running, Store, lives, on_each_store, tool};
use nix::sys::signal::Signal;
use testkit::eventually;

/// A command with a grandchild that nothing but SIGKILL ends; `wait` ends with the first signal.
const FAMILY: &str =
    "(trap '' TERM INT HUP; echo $$ > parent; while :; do sleep 0.02; done) & echo $! > pid; wait";

on_each_store! {
    a_killed_wrapper_takes_all_of_its_command_along,
    a_stopped_wrapper_does_not_keep_its_command_alive,
    a_killed_guardian_is_replaced,
}

/// The guardian of the run `wrapper`, once it has its name and has closed the inherited files.
fn guardian(wrapper: &Running) -> u64 {
    let mut found = None;
    eventually(LIMIT, "there is a guardian", || {
        found = children(wrapper.pid().as_raw().unsigned_abs().into())
            .into_iter()
            .find(|pid| name(*pid) == "lease-guardian" && open(*pid) == ["0"]);
        found.is_some()
    });
    found.expect("a guardian")
}

/// The files that a process has open.
fn open(pid: u64) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn children(parent: u64) -> Vec<u64> {
    fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .map(|pid| pid.parse().expect("a process id"))
        .collect()
}

fn name(pid: u64) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The guardian kills a command, long before its lease ends. After that another client gets the lock "x".
fn is_dead_before_the_next_holder(store: &Store, pid: u64) {
    eventually(LIMIT, "the guardian kills it", || !lives(pid));
    // A local store gives away the lock of a dead process at once.
    if !store.is_local() {
        let busy = store.run(&["-n", "x", "true"]).output();
        busy.is(75, &["is busy"]);
    }
    store.ends_in("x", 1);
    let next = store.run(&["-w", "30", "x", "true"]).output();
    next.is(0, &[]);
}

fn a_killed_wrapper_takes_all_of_its_command_along(store: &Store) {
    let running = store.run(&["--ttl", "1h", "x", "sh", "-c", FAMILY]).start();
    let grandchild = store.number("pid");
    let guardian = guardian(&running);
    running.signal(Signal::SIGKILL);
    is_dead_before_the_next_holder(store, grandchild);
    eventually(LIMIT, "the guardian has gone too", || !lives(guardian));
}

fn a_stopped_wrapper_does_not_keep_its_command_alive(store: &Store) {
    let running = store.run(&["--ttl", "6s", "x", "sh", "-c", FAMILY]).start();
    let grandchild = store.number("pid");
    running.stop();
    // The guardian has 2 % of the TTL to kill the command, and the machine may delay it for longer. So the servers keep the
    // lock; only the wrapper and its guardian count with the TTL.
    store.ends_in("x", 3_600_000);
    eventually(LIMIT, "the guardian kills it", || !lives(grandchild));
    if !store.is_local() {
        let busy = store.run(&["-n", "x", "true"]).output();
        busy.is(75, &["is busy"]);
    }
    store.ends_in("x", 1);
    let next = store.run(&["-w", "30", "x", "true"]).output();
    next.is(0, &[]);
    running.signal(Signal::SIGCONT);
    running.end().is(79, &["was lost", "(exit 79)"]);
}

/// Killing several guardians and then the wrapper does not leave the command alive.
fn a_killed_guardian_is_replaced(store: &Store) {
    let running = store.run(&["--ttl", "1h", "x", "sh", "-c", FAMILY]).start();
    let grandchild = store.number("pid");
    for _ in 0..3 {
        let killed = guardian(&running);
        tool("kill", &["-KILL", &killed.to_string()]);
        eventually(LIMIT, "it is dead", || !lives(killed));
    }
    let last = guardian(&running);
    running.until_it_says("lease-guardian was killed; a new one replaces it");
    running.signal(Signal::SIGKILL);
    is_dead_before_the_next_holder(store, grandchild);
    eventually(LIMIT, "the guardian has gone too", || !lives(last));
}

#[test]
fn guardian_killed_before_command_starts_is_replaced() {
    let store = Store::local();
    let holder = store.hold();
    let script = "touch ready; while ! [ -e end ]; do sleep 0.02; done; exit 5";
    let waiter = store.run(&["x", "sh", "-c", script]).start();
    waiter.until_it_says("1st in line");
    let killed = guardian(&waiter);
    tool("kill", &["-KILL", &killed.to_string()]);
    eventually(LIMIT, "it is dead", || !lives(killed));
    store.let_go();
    holder.end().is(0, &[]);
    store.until("ready");
    assert_ne!(guardian(&waiter), killed);
    store.touch("end");
    waiter.end().is(5, &[]);
}

/// The kill comes before the lock, between lock and command, and just after.
#[test]
fn a_wrapper_can_be_killed_at_any_moment() {
    let store = Store::local();
    // Each has its own lock, so that the next holders wait in parallel.
    let next = (0..16).map(|delay| {
        let (lock, pids) = (format!("x{delay}"), format!("pids{delay}"));
        let script = format!(
            "echo $$ >> {pids}; (trap '' TERM; echo $$ >> {pids}; while :; do sleep 0.01; done) & wait"
        );
        let running = store
            .run(&["-q", "--ttl", "1h", &lock, "sh", "-c", &script])
            .start();
        std::thread::sleep(std::time::Duration::from_millis(delay * 4));
        running.signal(Signal::SIGKILL);
        let words = ["-q", "-w", "30", &lock, "true"];
        (pids, store.run(&words).start())
    });
    for (pids, next) in next.collect::<Vec<_>>() {
        next.end().is(0, &[]);
        // The guardian may be later than the next holder on a local store, which frees the lock of a dead process at once.
        eventually(LIMIT, &format!("nobody lives of {pids}"), || {
            let pids = fs::read_to_string(store.file(&pids)).unwrap_or_default();
            let mut pids = pids.split_whitespace().flat_map(str::parse);
            !pids.any(lives)
        });
    }
}

#[test]
fn wrapper_resumed_before_key_expires_reports_the_kill() {
    // If the test is late, the wrapper goes on after its key, and reports it as well.
    let store = Store::local();
    let running = store.run(&["--ttl", "6s", "x", "sh", "-c", FAMILY]).start();
    let grandchild = store.number("pid");
    running.stop();
    eventually(LIMIT, "the guardian kills it", || !lives(grandchild));
    running.signal(Signal::SIGCONT);
    running.end().is(79, &["was lost", "(exit 79)"]);
    store.run(&["-n", "x", "true"]).output().is(0, &[]);
}

#[test]
fn a_killed_wrapper_that_waits_leaves_nobody() {
    let store = Store::local();
    let holder = store.hold();
    let waiter = store.run(&["x", "touch", "ran"]).start();
    waiter.until_it_says("1st in line");
    let guardian = guardian(&waiter);
    waiter.signal(Signal::SIGKILL);
    eventually(LIMIT, "the guardian has gone too", || !lives(guardian));
    store.let_go();
    holder.end().is(0, &[]);
    assert!(!store.file("ran").exists());
}

#[test]
fn killall_leaves_the_guardian_which_cleans_up() {
    let store = Store::local();
    let running = store.run(&["--ttl", "1h", "x", "sh", "-c", FAMILY]).start();
    let grandchild = store.number("pid");
    let guardian = guardian(&running);
    // The guardian ignores these signals. The test sends them to it directly.
    for signal in ["TERM", "INT", "HUP", "QUIT", "TSTP", "USR1", "PIPE"] {
        tool("kill", &[&format!("-{signal}"), &guardian.to_string()]);
    }
    assert!(lives(guardian));
    running.signal(Signal::SIGKILL);
    is_dead_before_the_next_holder(&store, grandchild);
}

#[test]
fn the_guardian_holds_nothing_of_the_callers() {
    let store = Store::local();
    let script = "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done";
    let running = store.run(&["x", "sh", "-c", script]).start();
    store.number("pid");
    let guardian = guardian(&running);
    // The only open file is the connection to the wrapper.
    assert_eq!(open(guardian), ["0"]);
    assert_eq!(
        fs::read_link(format!("/proc/{guardian}/cwd")).unwrap(),
        std::path::Path::new("/")
    );
    store.let_go();
    running.end().is(0, &[]);
    assert!(!lives(guardian), "the wrapper waits for its end");
}

/// A killed wrapper and its guardian give the pipe back as soon as the command is gone.
#[test]
fn a_pipeline_ends_with_the_command() {
    let store = Store::local();
    let mut pipeline = Command::new("sh")
        .args([
            "-c",
            &format!(
                "{} run --url {} x sh -c 'echo one; kill -9 $PPID; sleep 1000' | cat; touch ended",
                env!("CARGO_BIN_EXE_leasehold"),
                store.url
            ),
        ])
        .current_dir(store.dir.path())
        .spawn()
        .unwrap();
    store.until("ended");
    pipeline.wait().unwrap();
}

#[test]
fn a_run_whose_guardian_was_killed_says_so_and_goes_on() {
    let store = Store::local();
    let script = "touch ready; while ! [ -e let-go ]; do sleep 0.02; done; exit 5";
    let running = store.run(&["--ttl", "1h", "x", "sh", "-c", script]).start();
    store.until("ready");
    tool("kill", &["-KILL", &guardian(&running).to_string()]);
    running.until_it_says("lease-guardian was killed");
    store.let_go();
    running.end().is(5, &[]);
}

/// After the end of the command, the system may reuse the number of its group. The confirmation of the release may
/// come much later.
#[test]
fn the_guardian_ends_with_the_command_and_not_with_the_release() {
    let store = Store::silent_at_times();
    let running = store.hold();
    let guardian = guardian(&running);
    store.server().pause();
    store.let_go();
    eventually(LIMIT, "the guardian ends", || !lives(guardian));
    assert_eq!(
        fs::read_to_string(format!("/proc/{}/comm", running.pid()))
            .unwrap_or_default()
            .trim(),
        "leasehold",
        "the release is still under way"
    );
    running.end().is(0, &["may not have been released"]);
    store.server().resume();
}

/// A group that stays: a member has ended, and its parent has left the group and does not reap it.
const UNDEAD: &str = "import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(0)
    os.setsid()
    open('pid', 'w').write(str(os.getpid()))
    time.sleep(60)
while not os.path.exists('pid'):
    time.sleep(0.01)";

#[test]
fn a_lock_is_not_given_away_under_a_command_that_does_not_die() {
    let store = Store::redis();
    let words = ["--ttl", "30s", "--max-hold", "6s", "x", "python3", "-c"];
    let mut running = store.run(&words).words(&[UNDEAD]).start();
    let pid = store.number("pid");
    eventually(LIMIT, "leasehold ends", || running.has_ended());
    // For one more TTL.
    store.run(&["-n", "x", "true"]).output().is(75, &[]);
    tool("kill", &["-KILL", &pid.to_string()]);
    running.end().is(79, &["MAY STILL BE RUNNING", "(exit 79)"]);
}

/// The guardian kills the whole group. The wrapper may notice the death of the command before the other deaths.
#[test]
fn what_the_guardian_kills_is_not_said_to_run_on() {
    let script = format!("{UNDEAD}\ntime.sleep(60)");
    let with = |option: &str| {
        let store = Store::local();
        let words = [option, "--ttl", "6s", "x", "python3", "-c", &script];
        let mut running = store.run(&words).start();
        let pid = store.number("pid");
        running.stop();
        // The lease has ended, so the wrapper does not wait for the other processes without end.
        store.run(&["-w", "30", "x", "true"]).output().is(0, &[]);
        running.signal(Signal::SIGCONT);
        eventually(LIMIT, "leasehold ends", || running.has_ended());
        tool("kill", &["-KILL", &pid.to_string()]);
        let done = running.end();
        done.is(79, &["MAY STILL BE RUNNING", "(exit 79)"]);
        assert!(!done.stderr.contains("are still running"), "{done:?}");
    };
    std::thread::scope(|scope| {
        for option in ["-v", "--release-on-exit"] {
            scope.spawn(move || with(option));
        }
    });
}

//! The command never outlives the lock: whenever the wrapper dies or stops, all of the command is dead before
//! the next holder starts. Left processes of the command keep the lock.

// `setsid`, `env --default-signal` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "real processes in real time")]

use std::fs;
use std::process::Command;

use crate::common::{LEASEHOLD, LIMIT, Running, Store, lives, on_each_store, tool};
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
    let pid = wrapper.pid();
    let mut found = None;
    eventually(LIMIT, "there is a guardian", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        found = children
            .split_whitespace()
            .map(|pid| pid.parse().expect("a process id"))
            .find(|pid| name(*pid) == "lease-guardian" && open(*pid) == ["0"]);
        found.is_some()
    });
    found.expect("a guardian")
}

/// The files that a process has open.
fn open(pid: u64) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let names = entries.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

fn name(pid: impl std::fmt::Display) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim().to_owned()
}

fn kill_hard(pid: u64) {
    tool("kill", &["-KILL", &pid.to_string()]);
    eventually(LIMIT, "it is dead", || !lives(pid));
}

/// The guardian kills a command, before its lease ends for the servers. After that another client gets the lock "x".
fn is_dead_before_the_next_holder(store: &Store, pid: u64) {
    eventually(LIMIT, "the guardian kills it", || !lives(pid));
    // A local store gives away the lock of a dead process at once.
    if !store.is_local() {
        store.is_busy();
    }
    store.ends_in("x", 1);
    store.run("-w 30 x true").is(0, &[]);
}

fn a_killed_wrapper_takes_all_of_its_command_along(store: &Store) {
    let running = store.script("--ttl 1h x", FAMILY).start();
    let grandchild = store.number("pid");
    let guardian = guardian(&running);
    running.signal(Signal::SIGKILL);
    is_dead_before_the_next_holder(store, grandchild);
    eventually(LIMIT, "the guardian has gone too", || !lives(guardian));
}

fn a_stopped_wrapper_does_not_keep_its_command_alive(store: &Store) {
    let running = store.script("--ttl 6s x", FAMILY).start();
    let grandchild = store.number("pid");
    running.stop();
    // The guardian has 2 % of the TTL to kill the command, and the machine may delay it for longer. So the servers keep the
    // lock; only the wrapper and its guardian count with the TTL.
    store.ends_in("x", 3_600_000);
    is_dead_before_the_next_holder(store, grandchild);
    running.signal(Signal::SIGCONT);
    running.ends(79, &["was lost", "(exit 79)"]);
}

/// Killing several guardians and then the wrapper does not leave the command alive.
fn a_killed_guardian_is_replaced(store: &Store) {
    let running = store.script("--ttl 1h x", FAMILY).start();
    let grandchild = store.number("pid");
    for _ in 0..3 {
        kill_hard(guardian(&running));
    }
    let last = guardian(&running);
    running.until_it_says("lease-guardian was killed; a new one replaces it");
    running.signal(Signal::SIGKILL);
    is_dead_before_the_next_holder(store, grandchild);
    eventually(LIMIT, "the guardian has gone too", || !lives(last));
}

/// Before the command begins, and while it runs. The run goes on.
#[test]
fn guardian_killed_at_any_time_is_replaced() {
    let store = Store::local();
    let holder = store.hold();
    let script = "touch ready; while ! [ -e end ]; do sleep 0.02; done; exit 5";
    let waiter = store.script("x", script).start();
    waiter.until_it_says("1st in line");
    let killed = guardian(&waiter);
    kill_hard(killed);
    store.let_go();
    holder.ends(0, &[]);
    store.until("ready");
    let second = guardian(&waiter);
    assert_ne!(second, killed);
    kill_hard(second);
    waiter.until_it_says("lease-guardian was killed; a new one replaces it");
    store.touch("end");
    waiter.ends(5, &[]);
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
        let running = store.script(&format!("-q --ttl 1h {lock}"), &script).start();
        std::thread::sleep(std::time::Duration::from_millis(delay * 4));
        running.signal(Signal::SIGKILL);
        (pids, store.run(&format!("-q -w 30 {lock} true")).start())
    });
    for (pids, next) in next.collect::<Vec<_>>() {
        next.ends(0, &[]);
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
    let running = store.script("--ttl 6s x", FAMILY).start();
    let grandchild = store.number("pid");
    running.stop();
    eventually(LIMIT, "the guardian kills it", || !lives(grandchild));
    running.signal(Signal::SIGCONT);
    running.ends(79, &["was lost", "(exit 79)"]);
    store.is_free();
}

#[test]
fn a_killed_wrapper_that_waits_leaves_nobody() {
    let store = Store::local();
    let holder = store.hold();
    let waiter = store.run("x touch ran").start();
    waiter.until_it_says("1st in line");
    let guardian = guardian(&waiter);
    waiter.signal(Signal::SIGKILL);
    eventually(LIMIT, "the guardian has gone too", || !lives(guardian));
    store.let_go();
    holder.ends(0, &[]);
    assert!(!store.file("ran").exists());
}

#[test]
fn killall_leaves_the_guardian_which_cleans_up() {
    let store = Store::local();
    let running = store.script("--ttl 1h x", FAMILY).start();
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
    let running = store.script("x", script).start();
    store.number("pid");
    let guardian = guardian(&running);
    // The only open file is the connection to the wrapper.
    assert_eq!(open(guardian), ["0"]);
    let place = fs::read_link(format!("/proc/{guardian}/cwd"));
    assert_eq!(place.unwrap(), std::path::Path::new("/"));
    store.let_go();
    running.ends(0, &[]);
    assert!(!lives(guardian), "the wrapper waits for its end");
}

/// A killed wrapper and its guardian give the pipe back as soon as the command is gone.
#[test]
fn a_pipeline_ends_with_the_command() {
    let store = Store::local();
    let script = format!(
        "{} run --url {} x sh -c 'echo one; kill -9 $PPID; sleep 1000' | cat; touch ended",
        LEASEHOLD, store.url
    );
    let mut sh = Command::new("sh");
    let pipeline = sh
        .args(["-c", &script])
        .current_dir(store.dir.path())
        .spawn();
    store.until("ended");
    pipeline.unwrap().wait().unwrap();
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
    let release = name(running.pid());
    assert_eq!(release, "leasehold", "it is still under way");
    running.ends(0, &["may not have been released"]);
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
    store.is_busy();
    tool("kill", &["-KILL", &pid.to_string()]);
    running.ends(79, &["MAY STILL BE RUNNING", "(exit 79)"]);
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
        store.run("-w 30 x true").is(0, &[]);
        running.signal(Signal::SIGCONT);
        eventually(LIMIT, "leasehold ends", || running.has_ended());
        tool("kill", &["-KILL", &pid.to_string()]);
        let done = running.ends(79, &["MAY STILL BE RUNNING", "(exit 79)"]);
        assert!(!done.stderr.contains("are still running"), "{done:?}");
    };
    std::thread::scope(|scope| {
        for option in ["-v", "--release-on-exit"] {
            scope.spawn(move || with(option));
        }
    });
}

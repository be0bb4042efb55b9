//! Processes that the command leaves: they keep the lock, get signals, and are reaped.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::eventually;

use crate::common::{LEASEHOLD, LIMIT, Store, lives, on_each_store, tool};

on_each_store! {
    what_the_command_leaves_behind_keeps_the_lock,
    what_is_left_behind_can_be_let_go,
}

fn what_the_command_leaves_behind_keeps_the_lock(store: &Store) {
    let script = "(while ! [ -e let-go ]; do sleep 0.02; done; touch last) & echo $! > pid; exit 3";
    let running = store.script("--ttl 9s x", script).start();
    running.until_it_says("processes that it started are still running");
    store.until_renewed();
    store.run("-n x touch ran").is(75, &[]);
    store.let_go();
    let done = running.ends(3, &[]);
    assert_eq!(done.stderr.matches("leasehold:").count(), 1, "{done:?}");
    assert!(store.file("last").exists() && !store.file("ran").exists());
    store.is_free();
}

fn what_is_left_behind_can_be_let_go(store: &Store) {
    let script = "(while ! [ -e let-go ]; do sleep 0.02; done; touch last) & exit 3";
    store.script("--release-on-exit x", script).says_nothing(3);
    store.is_free();
    store.let_go();
    store.until("last");
}

/// Leaves a process in a session of its own, with its number in the file `stray`.
const LEAVE: &str = "setsid sleep 1000 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do sleep 0.02; done; echo $! > stray";

/// No signal of the wrapper reaches such a process, and it does not keep the lock.
#[test]
fn what_left_the_group_is_named_at_each_kind_of_end() {
    const GO_ON: &str = "while :; do sleep 0.02; done";
    let on_term = format!("trap 'exit 0' TERM; touch ready; {GO_ON}");
    let ready = format!("touch ready; {GO_ON}");
    std::thread::scope(|scope| {
        // The options, the script, what the test does, and the exit code.
        for (words, script, act, code) in [
            ("", "exit 0", "", 0),
            ("", "exit 7", "", 7),
            ("--quiet", "kill -KILL $$", "", 137),
            ("", &ready, "term", 143),
            ("", &on_term, "term", 0),
            ("--ttl 6s", GO_ON, "lose", 79),
            ("--max-hold 6s", GO_ON, "", 79),
        ] {
            scope.spawn(move || {
                let store = Store::redis();
                let script = format!("{LEAVE}; {script}");
                let running = store.script(&format!("{words} x"), &script).start();
                let stray = store.number("stray");
                if act == "term" {
                    store.until("ready");
                    running.signal(Signal::SIGTERM);
                } else if act == "lose" {
                    store.server().cli(&["DEL", "x"]);
                }
                let done = running.end();
                let goes_on = lives(stray);
                tool("kill", &["-KILL", &stray.to_string()]);
                assert!(goes_on, "{script}");
                let pid = format!("do not keep the lock: pid {stray} (sleep)\n");
                done.is(code, &["outside of its group", &pid]);
            });
        }
    });
}

#[test]
fn a_quiet_run_leaves_a_daemon_without_a_word() {
    let store = Store::local();
    let done = store.script("-q x", LEAVE).output();
    tool("kill", &["-KILL", &store.number("stray").to_string()]);
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""));
}

#[test]
fn what_goes_on_without_a_lost_lock_is_not_said_to_keep_it() {
    let store = Store::redis();
    let script = "(while ! [ -e let-go ]; do sleep 0.02; done) & touch ready; while ! [ -e lost ]; do sleep 0.02; done";
    let running = store.script("--ttl 6s --on-lost warn x", script).start();
    store.until("ready");
    store.server().cli(&["DEL", "x"]);
    running.until_it_says("goes on WITHOUT it");
    store.touch("lost");
    running.until_it_says("processes that it started are still running");
    store.let_go();
    let done = running.ends(79, &["\"x\" was lost, and they go on WITHOUT it"]);
    assert!(!done.stderr.contains("is kept"), "{done:?}");
}

#[test]
fn signals_reach_what_is_left_behind() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let store = Store::local();
        // `sh` starts background processes with INT ignored.
        let script = "(touch ready; while :; do sleep 0.02; done) & echo $! > pid; exit 3";
        let running = store.script("x", script).start();
        let left = store.number("pid");
        store.until("ready");
        running.until_it_says("are still running");
        running.signal(signal);
        if signal == Signal::SIGINT {
            // The second Ctrl-C kills. The system may deliver two signals as one, so the test sends it again.
            eventually(LIMIT, "the second is heard", || {
                running.signal(signal);
                std::thread::sleep(Duration::from_millis(100));
                !lives(left)
            });
        }
        running.ends(3, &[]);
        assert!(!lives(left));
    }
}

/// As PID 1 the wrapper must reap left processes; a process that left the group does not keep the lock.
#[test]
fn as_the_first_process_it_buries_the_dead() {
    let store = Store::local();
    let unshared = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork"]);
        command.args(["--mount-proc", "--kill-child"]).args(words);
        command.current_dir(store.dir.path());
        command
    };
    let run = |script: &str| {
        let leasehold = [LEASEHOLD, "run", "--url", &store.url];
        unshared(&[&leasehold[..], &["x", "sh", "-c", script]].concat())
    };
    let possible = unshared(&["true"]).output();
    if !possible.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: this system does not permit `unshare --pid`");
        return;
    }
    // Two orphans that end at the same time, one of them in its own session, and the check for zombies.
    let script = "(sleep 0.01 & setsid sleep 0.01 &); sleep 1; ps -e -o stat=,comm= > processes; echo $PPID > parent; exit 6";
    let done = run(script).output().unwrap();
    assert_eq!(done.status.code(), Some(6), "{done:?}");
    assert_eq!(store.number("parent"), 1);
    let processes = fs::read_to_string(store.file("processes")).unwrap();
    assert!(processes.contains("leasehold"), "{processes}");
    let is_buried = !processes.contains('Z') && !processes.contains("sleep");
    assert!(is_buried, "{processes}");
    // As PID 1 the wrapper also forwards signals.
    let script = "trap 'exit 42' TERM; touch ready; while :; do sleep 0.02; done";
    let mut running = run(script).spawn().unwrap();
    store.until("ready");
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let first = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill(Pid::from_raw(first), Signal::SIGTERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(42));
}

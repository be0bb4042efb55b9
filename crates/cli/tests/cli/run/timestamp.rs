//! `leasehold run --protocol timestamp`, beside clients that do SETNX, GETSET and DEL.

// `setsid` and `env --default-signal` are Linux'.
#![cfg(target_os = "linux")]

use testkit::{FaultProxy, Reply, eventually};

use crate::common::{LIMIT, Running, Store, lives};

/// Far ahead: no clock regards it as passed.
const AHEAD: &str = "4000000000";

const TIMESTAMP: [&str; 2] = ["--protocol", "timestamp"];

fn value(store: &Store) -> Option<String> {
    let reply = store.server().cli(&["GET", "x"]);
    (!reply.is_nil()).then(|| reply.text())
}

/// Runs a command that never ends by itself under the lock "x".
fn start(store: &Store, ttl: &str) -> (Running, u64) {
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let words = ["--ttl", ttl, "x", "sh", "-c", script];
    let running = store.run(&TIMESTAMP).words(&words).start();
    let pid = store.number("pid");
    (running, pid)
}

#[test]
fn a_command_runs_under_the_deadline_and_without_a_fence() {
    let store = Store::redis();
    for (unit, digits) in [("s", 10), ("ms", 13)] {
        let script = "echo \"$LEASEHOLD_LOCK,${LEASEHOLD_FENCE-none},${LEASEHOLD_TOKEN-none},${LEASEHOLD_HOLDER-none}\"; echo > ready; while ! [ -e go ]; do sleep 0.02; done; exit 7";
        let words = ["--timestamp-unit", unit, "x", "sh", "-c", script];
        let run = store.run(&TIMESTAMP).words(&words);
        // The variables of an outer run do not belong to this lock.
        let running = run
            .env("LEASEHOLD_FENCE", "5")
            .env("LEASEHOLD_HOLDER", "h")
            .start();
        store.until("ready");
        let deadline = value(&store).expect("it is held");
        assert_eq!(deadline.len(), digits, "{deadline}");
        assert_eq!(store.server().cli(&["TTL", "x"]).int(), -1);
        assert_eq!(store.server().cli(&["SETNX", "x", AHEAD]).int(), 0);
        store.touch("go");
        let done = running.end();
        assert_eq!(
            (done.code(), done.stdout.trim()),
            (7, "x,none,none,none"),
            "{done:?}"
        );
        assert_eq!(value(&store), None);
        for file in ["ready", "go"] {
            std::fs::remove_file(store.file(file)).expect("it was made");
        }
    }
}

#[test]
fn a_foreign_lock_is_busy_waited_for_and_taken_when_it_is_free() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", AHEAD]);
    let words = ["x", "true"];
    let run = |option: &[&str]| store.run(&TIMESTAMP).words(option).words(&words);
    run(&["--try"])
        .output()
        .is(75, &["\"x\" is busy (exit 75)"]);
    run(&["--try", "-q"]).output().is(75, &[]);
    run(&["--skip"]).output().is(0, &[]);
    run(&["--wait", "1"])
        .output()
        .is(124, &["is still busy after", "(exit 124)"]);
    let waiting = run(&[]).start();
    waiting.until_it_says("polling it");
    store.server().cli(&["DEL", "x"]);
    waiting.end().is(0, &[]);
    // A passed deadline is taken over.
    store.server().cli(&["SET", "x", "1500000000"]);
    run(&["--try"]).output().is(0, &[]);
    assert_eq!(value(&store), None);
}

#[test]
fn a_command_whose_deadline_was_overwritten_is_stopped() {
    let store = Store::redis();
    let (running, pid) = start(&store, "6s");
    store.server().cli(&["GETSET", "x", AHEAD]);
    running.end().is(
        79,
        &[
            "the lock \"x\" (timestamp protocol) was lost",
            "the command was stopped (exit 79)",
        ],
    );
    assert!(!lives(pid));
    assert_eq!(value(&store).as_deref(), Some(AHEAD));
}

#[test]
fn command_is_dead_before_deadline_when_renewal_is_impossible() {
    let store = Store::redis();
    let (running, pid) = start(&store, "60s");
    // SIGKILL ends the wrapper, so only the guardian remains.
    running.signal(nix::sys::signal::Signal::SIGKILL);
    eventually(LIMIT, "the command is dead", || !lives(pid));
    let deadline: i64 = value(&store)
        .expect("it is held")
        .parse()
        .expect("a number");
    let Reply::Array(time) = store.server().cli(&["TIME"]) else {
        panic!("no time")
    };
    assert!(time[0].int() < deadline, "{} {deadline}", time[0].int());
    drop(running);
}

#[test]
fn at_least_keeps_the_deadline() {
    let store = Store::redis();
    let words = ["--at-least", "60s", "x", "true"];
    store.run(&TIMESTAMP).words(&words).output().is(0, &[]);
    store
        .run(&TIMESTAMP)
        .words(&["--try", "x", "true"])
        .output()
        .is(75, &["busy"]);
}

#[test]
fn at_least_while_nobody_answers_keeps_the_lock_and_says_so() {
    let mut store = Store::redis();
    let proxy = FaultProxy::start(store.server().port());
    store.url = proxy.url();
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep 0.02; done";
    let words = ["--at-least", "60s", "x", "sh", "-c", script];
    let running = store.run(&TIMESTAMP).words(&words).start();
    store.number("pid");
    proxy.refuse(true);
    proxy.cut();
    store.touch("go");
    let said = "the lock \"x\" (timestamp protocol) may not have been released";
    running.end().is(0, &[said]);
    assert!(value(&store).is_some(), "it is not freed");
}

#[test]
fn a_store_that_refuses_for_a_while_does_not_end_the_waiting() {
    let store = Store::redis();
    let writes = |replicas: &str| {
        let set = ["CONFIG", "SET", "min-replicas-to-write", replicas];
        assert_eq!(store.server().cli(&set).text(), "OK");
    };
    writes("1");
    let run = |option: &[&str]| store.run(&TIMESTAMP).words(option).words(&["x", "true"]);
    // A run with `--try` reports the reason. A run that waited without success does not report a busy lock.
    run(&["--try"])
        .output()
        .is(69, &["refuses requests for now"]);
    run(&["--wait", "1"])
        .output()
        .is(69, &["refuses requests for now"]);
    let asked = || {
        let stats = store.server().cli(&["INFO", "errorstats"]).text();
        let line = stats.lines().find(|line| line.contains("_NOREPLICAS:"));
        let count = line.and_then(|line| line.split('=').nth(1));
        count.map_or(0, |count| count.trim().parse::<u64>().expect("a number"))
    };
    let before = asked();
    let waiting = run(&["--wait", "30"]).start();
    eventually(LIMIT, "it was refused", || asked() > before);
    writes("0");
    waiting.end().is(0, &[]);
}

#[test]
fn a_run_inside_of_itself_does_not_wait_for_ever() {
    let store = Store::redis();
    let inner = |option: &str, lock: &str| {
        let run = format!("{} run", env!("CARGO_BIN_EXE_leasehold"));
        let script = format!("{run} --protocol timestamp {option} {lock} true; exit $?");
        let words = ["x", "sh", "-c", &script];
        store.run(&TIMESTAMP).words(&words).output()
    };
    for option in ["", "--try"] {
        inner(option, "x").is(64, &["\"x\" is held by an outer `leasehold run`"]);
    }
    // Another lock is independent. It has another name, or the same name in another namespace.
    inner("", "y").is(0, &[]);
    inner("--namespace other", "x").is(0, &[]);
    store.server().cli(&["SET", "y", AHEAD]);
    inner("--try", "y").is(75, &["\"y\" is busy"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let store = Store::redis();
    for (options, why) in [
        (
            &["--timestamp-unit", "ms"][..],
            "--timestamp-unit cannot be used",
        ),
        (
            &["--timestamp-without-scripts"],
            "--timestamp-without-scripts cannot be used",
        ),
        (
            &["--protocol", "timestamp", "--max-waiters", "3"],
            "there is no queue",
        ),
        (
            &["--protocol", "timestamp", "--note", "n"],
            "no other client would see it",
        ),
        (&["--protocol", "redlock"], "redlock"),
    ] {
        let done = store.run(options).words(&["x", "touch", "ran"]).output();
        done.is(64, &[why]);
    }
    let words = ["x", "touch", "ran"];
    let local = Store::local();
    local
        .run(&TIMESTAMP)
        .words(&words)
        .output()
        .is(64, &["use a mutex"]);
    // A value that is not a time stays unchanged.
    store.server().cli(&["SET", "x", "somebody"]);
    let done = store.run(&TIMESTAMP).words(&words).output();
    done.is(
        78,
        &["\"x\" holds a string of 8 bytes", "no time in seconds"],
    );
    assert!(!done.stderr.contains("somebody"), "{done:?}");
    assert_eq!(value(&store).as_deref(), Some("somebody"));
    assert!(!store.file("ran").exists() && !local.file("ran").exists());
}

#[test]
fn command_stopped_after_refused_renewal_reports_the_cause() {
    let is_told = |options: &[&str]| {
        let store = Store::redis();
        let script = "echo $$ > pid; while :; do sleep 0.02; done";
        let words = ["--ttl", "12s", "x", "sh", "-c", script];
        let running = store.run(options).words(&words).start();
        store.number("pid");
        let forbids = ["ACL", "SETUSER", "default", "-pexpire"];
        assert_eq!(store.server().cli(&forbids).text(), "OK");
        // On a busy machine the deadline may pass before the wrapper stops the command. The message then begins in another way.
        running.end().is(79, &["was lost: ", "access denied"]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| is_told(&TIMESTAMP));
        scope.spawn(|| is_told(&[]));
    });
}

#[test]
fn a_user_who_may_not_run_scripts_says_so() {
    let store = Store::redis();
    let rules = [
        "ACL",
        "SETUSER",
        "worker",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
    ];
    assert_eq!(store.server().cli(&rules).text(), "OK");
    let url = format!("redis://worker:secret@127.0.0.1:{}/", store.server().port());
    let run = |options: &[&str]| {
        let run = crate::common::Run::new(store.dir.path()).words(&["--url", &url]);
        run.words(&TIMESTAMP)
            .words(options)
            .words(&["x", "true"])
            .output()
    };
    run(&[]).is(77, &["access denied"]);
    run(&["--timestamp-without-scripts"]).is(0, &[]);
    assert_eq!(value(&store), None);
}

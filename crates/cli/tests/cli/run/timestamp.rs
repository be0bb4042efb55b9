//! `leasehold run --protocol timestamp`, beside clients that do SETNX, GETSET and DEL.

// `setsid` and `env --default-signal` are Linux'.
#![cfg(target_os = "linux")]

use testkit::{FaultProxy, eventually};

use crate::common::{LEASEHOLD, LIMIT, Run, Running, Store, lives};

/// Far ahead: no clock regards it as passed.
const AHEAD: &str = "4000000000";

const TIMESTAMP: &str = "--protocol timestamp";

fn value(store: &Store) -> Option<String> {
    let reply = store.server().cli(&["GET", "x"]);
    (!reply.is_nil()).then(|| reply.text())
}

/// `run --protocol timestamp options... x true`.
fn run(store: &Store, options: &str) -> Run {
    store.run(TIMESTAMP).words(options).words("x true")
}

/// Runs a command that never ends by itself under the lock "x".
fn start(store: &Store, options: &str) -> (Running, u64) {
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let running = store.script(&format!("{options} x"), script).start();
    let pid = store.number("pid");
    (running, pid)
}

#[test]
fn a_command_runs_under_the_deadline_and_without_a_fence() {
    let store = Store::redis();
    for (unit, digits) in [("s", 10), ("ms", 13)] {
        let script = "echo \"$LEASEHOLD_LOCK,${LEASEHOLD_FENCE-none},${LEASEHOLD_TOKEN-none},${LEASEHOLD_HOLDER-none}\"; echo > ready; while ! [ -e go ]; do sleep 0.02; done; exit 7";
        let run = store.script(&format!("{TIMESTAMP} --timestamp-unit {unit} x"), script);
        // The variables of an outer run do not belong to this lock.
        let run = run.env("LEASEHOLD_FENCE", "5").env("LEASEHOLD_HOLDER", "h");
        let running = run.start();
        store.until("ready");
        let deadline = value(&store).expect("it is held");
        assert_eq!(deadline.len(), digits, "{deadline}");
        assert_eq!(store.server().cli(&["TTL", "x"]).int(), -1);
        assert_eq!(store.server().cli(&["SETNX", "x", AHEAD]).int(), 0);
        store.touch("go");
        running.prints(7, "x,none,none,none\n");
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
    for (option, code, says) in [
        ("--try", 75, &["\"x\" is busy (exit 75)"][..]),
        ("--try -q", 75, &[]),
        ("--skip", 0, &[]),
        ("--wait 1", 124, &["is still busy after", "(exit 124)"]),
    ] {
        run(&store, option).is(code, says);
    }
    let waiting = run(&store, "").start();
    waiting.until_it_says("polling it");
    store.server().cli(&["DEL", "x"]);
    waiting.ends(0, &[]);
    // A passed deadline is taken over.
    store.server().cli(&["SET", "x", "1500000000"]);
    run(&store, "--try").is(0, &[]);
    assert_eq!(value(&store), None);
}

#[test]
fn a_command_whose_deadline_was_overwritten_is_stopped() {
    let store = Store::redis();
    let (running, pid) = start(&store, "--protocol timestamp --ttl 6s");
    store.server().cli(&["GETSET", "x", AHEAD]);
    let lost = "the lock \"x\" (timestamp protocol) was lost";
    running.ends(79, &[lost, "the command was stopped (exit 79)"]);
    assert!(!lives(pid));
    assert_eq!(value(&store).as_deref(), Some(AHEAD));
}

#[test]
fn command_is_dead_before_deadline_when_renewal_is_impossible() {
    let store = Store::redis();
    let (running, pid) = start(&store, "--protocol timestamp --ttl 60s");
    // SIGKILL ends the wrapper, so only the guardian remains.
    running.signal(nix::sys::signal::Signal::SIGKILL);
    eventually(LIMIT, "the command is dead", || !lives(pid));
    let deadline = store.server().cli(&["GET", "x"]).int();
    let now = store.server().cli(&["TIME"]).array()[0].int();
    assert!(now < deadline, "{now} {deadline}");
}

#[test]
fn at_least_keeps_the_deadline() {
    let store = Store::redis();
    run(&store, "--at-least 60s").is(0, &[]);
    run(&store, "--try").is(75, &["busy"]);
}

#[test]
fn at_least_while_nobody_answers_keeps_the_lock_and_says_so() {
    let mut store = Store::redis();
    let proxy = FaultProxy::start(store.server().port());
    store.url = proxy.url();
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep 0.02; done";
    let words = "--protocol timestamp --at-least 60s x";
    let running = store.script(words, script).start();
    store.number("pid");
    proxy.refuse(true);
    proxy.cut();
    store.touch("go");
    let said = "the lock \"x\" (timestamp protocol) may not have been released";
    running.ends(0, &[said]);
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
    // A run with `--try` reports the reason. A run that waited without success does not report a busy lock.
    for option in ["--try", "--wait 1"] {
        run(&store, option).is(69, &["refuses requests for now"]);
    }
    let asked = || {
        let stats = store.server().cli(&["INFO", "errorstats"]).text();
        let line = stats.lines().find(|line| line.contains("_NOREPLICAS:"));
        let count = line.and_then(|line| line.split('=').nth(1));
        count.map_or(0, |count| count.trim().parse::<u64>().expect("a number"))
    };
    let before = asked();
    let waiting = run(&store, "--wait 30").start();
    eventually(LIMIT, "it was refused", || asked() > before);
    writes("0");
    waiting.ends(0, &[]);
}

#[test]
fn a_run_inside_of_itself_does_not_wait_for_ever() {
    let store = Store::redis();
    let inner = |options: &str| {
        let run = format!("{LEASEHOLD} run {TIMESTAMP}");
        let script = format!("{run} {options} true; exit $?");
        store.script("--protocol timestamp x", &script)
    };
    for words in ["x", "--try x"] {
        inner(words).is(64, &["\"x\" is held by an outer `leasehold run`"]);
    }
    // Another lock is independent. It has another name, or the same name in another namespace.
    inner("y").is(0, &[]);
    inner("--namespace other x").is(0, &[]);
    store.server().cli(&["SET", "y", AHEAD]);
    inner("--try y").is(75, &["\"y\" is busy"]);
}

#[test]
fn value_that_is_no_time_stays_unchanged() {
    let store = Store::redis();
    store.server().cli(&["SET", "x", "somebody"]);
    let says = ["\"x\" holds a string of 8 bytes", "no time in seconds"];
    let done = run(&store, "").is(78, &says);
    assert!(!done.stderr.contains("somebody"), "{done:?}");
    assert_eq!(value(&store).as_deref(), Some("somebody"));
}

#[test]
fn command_stopped_after_refused_renewal_reports_the_cause() {
    let is_told = |protocol: &str| {
        let store = Store::redis();
        let (running, _) = start(&store, &format!("{protocol} --ttl 12s"));
        let forbids = ["ACL", "SETUSER", "default", "-pexpire"];
        assert_eq!(store.server().cli(&forbids).text(), "OK");
        // On a busy machine the deadline may pass before the wrapper stops the command. The message then begins in another way.
        running.ends(79, &["was lost: ", "access denied"]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| is_told(TIMESTAMP));
        scope.spawn(|| is_told(""));
    });
}

#[test]
fn a_user_who_may_not_run_scripts_says_so() {
    let mut store = Store::redis();
    let rules = "ACL SETUSER worker on >secret ~* &* +@all -@scripting";
    let rules: Vec<&str> = rules.split(' ').collect();
    assert_eq!(store.server().cli(&rules).text(), "OK");
    store.url = format!("redis://worker:secret@127.0.0.1:{}/", store.server().port());
    run(&store, "").is(77, &["access denied"]);
    run(&store, "--timestamp-without-scripts").is(0, &[]);
    assert_eq!(value(&store), None);
}

//! The options of `leasehold run`: limits, stopping, and the messages at the end.

// `setsid`, `env --default-signal` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "real processes in real time")]

mod also;
mod contention;
mod guardian;
mod kinds;
mod lease_loss;
mod left_processes;
mod once;
mod passthrough;
mod refusals;
mod report;
mod service;
mod signals;
mod terminal;
mod timestamp;
mod waiting;

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{LEASEHOLD, Run, Store, lives, on_each_store};

on_each_store! {
    only_so_many_wait,
    a_hold_can_be_limited,
    a_lock_can_be_kept_after_a_success,
}

#[test]
fn a_busy_lock_can_be_skipped_or_have_its_own_code() {
    let store = &Store::local();
    let holder = store.hold();
    for words in ["--skip x touch ran", "--skip -w 1 x touch ran"] {
        assert_eq!(store.run(words).says_nothing(0).stdout, "");
    }
    for words in ["-E 9 -n x touch ran", "--busy-code=9 -w 1 x touch ran"] {
        store.run(words).is(9, &["busy", "(exit 9)"]);
    }
    assert!(!store.file("ran").exists());
    store.let_go();
    holder.ends(0, &[]);
    // The command's own exit codes stay unchanged.
    for code in [75, 124] {
        for words in ["-E 9 x", "--skip x"] {
            store.script(words, &format!("exit {code}")).is(code, &[]);
        }
    }
}

fn only_so_many_wait(store: &Store) {
    let holder = store.hold();
    let none = store.run("--max-waiters 0 x touch ran");
    none.is(75, &["0 wait already", "(exit 75)"]);
    let first = store.run("--max-waiters 1 x true").start();
    first.until_it_says("1st in line");
    let says = [
        "is busy, and 1 waits already (exit 75)",
        "queue   1 waiting",
    ];
    store.run("--max-waiters 1 x touch ran").is(75, &says);
    let skips = store.run("--max-waiters 1 --skip -w 1h x touch ran");
    skips.says_nothing(0);
    store.let_go();
    holder.ends(0, &[]);
    first.ends(0, &[]);
    assert!(!store.file("ran").exists());
}

fn a_hold_can_be_limited(store: &Store) {
    let script = "(trap '' TERM; while :; do sleep 0.02; done) & echo $! > pid; wait";
    let begun = Instant::now();
    let limits = "--max-hold 7s --ttl 6s --report report x";
    let running = store.script(limits, script).start();
    let grandchild = store.number("pid");
    let says = [
        "reached its time limit (7.0s, --max-hold)",
        "stopped (exit 79)",
    ];
    running.ends(79, &says);
    // The run must not end before a lease has passed.
    assert!(begun.elapsed() > Duration::from_secs(6));
    assert!(!lives(grandchild));
    store.is_free();
    let report = store.document("report");
    assert_eq!(report["outcome"], "lost");
    assert_eq!(report["lost_cause"], "--max-hold 7.0s");
}

fn a_lock_can_be_kept_after_a_success(store: &Store) {
    for (words, code) in [
        ("--at-least 1h x false", 1),
        ("-n --at-least 0.02 x sleep 0.1", 0),
        ("-n --at-least 1h x true", 0),
        ("-n x true", 75),
    ] {
        store.run(words).is(code, &[]);
    }
    if let Some(server) = &store.redis {
        let left = server.cli(&["PTTL", "x"]).int();
        assert!((3_000_000..=3_600_000).contains(&left), "{left}");
    }
}

#[test]
fn a_lost_lease_does_what_was_wished() {
    thread::scope(|scope| {
        // For each signal: the command's reaction, whether it noticed the end, and how it ended.
        for (action, signal, seen) in [
            ("signal:USR1", "USR1", true),
            ("kill", "TERM", false),
            ("term", "TERM", true),
        ] {
            scope.spawn(move || is_told_of_a_loss(action, signal, seen));
        }
        scope.spawn(is_warned_of_a_loss);
    });
}

fn is_told_of_a_loss(action: &str, signal: &str, seen: bool) {
    let store = Store::redis();
    let script =
        format!("trap 'touch seen; exit 0' {signal}; echo $$ > pid; while :; do sleep 0.02; done");
    let words = format!("--ttl 19s --grace 6.1s --on-lost {action} x");
    let running = store.script(&words, &script).start();
    let pid = store.number("pid");
    store.server().cli(&["DEL", "x"]);
    running.ends(79, &["(exit 79)"]);
    assert!(!lives(pid), "{action}");
    assert_eq!(store.file("seen").exists(), seen, "{action}");
}

fn is_warned_of_a_loss() {
    let store = Store::redis();
    let script = "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; touch end; exit 0";
    let running = store.script("--ttl 6s --on-lost warn x", script).start();
    let pid = store.number("pid");
    store.server().cli(&["SET", "x", "somebody"]);
    running.until_it_says("goes on WITHOUT it");
    thread::sleep(Duration::from_secs(2));
    let why = "past the time at which it would have been killed";
    assert!(lives(pid), "{why}");
    store.let_go();
    let done = running.ends(79, &["was lost", "the command ended after that (exit 79)"]);
    assert_eq!(done.stderr.matches("WITHOUT").count(), 1, "{done:?}");
    assert!(store.file("end").exists());
}

/// Three commands lose their locks. One stops when it is asked, one needs longer than the longest default grace (5 s), and one never stops.
#[test]
fn the_grace_is_the_time_between_asking_and_killing() {
    let store = Store::redis();
    let start = |lock: &str, grace: &str, script: &str| {
        let script = format!("{script}; echo $$ > {lock}; while :; do sleep 0.02; done");
        let words = format!("--ttl 36s {grace} {lock}");
        let running = store.script(&words, &script).start();
        store.number(lock);
        running
    };
    let asked = "trap 'sleep 0.1; touch asked; exit 0' TERM";
    let asked = start("asked", "", asked);
    let long =
        "trap 'while ! [ -e killed ]; do sleep 0.02; done; sleep 5.2; touch cleaned; exit 0' TERM";
    let long = start("long", "--grace 11.5s", long);
    let stubborn = start("stubborn", "--grace 0.1", "trap '' TERM");
    store.server().cli(&["DEL", "asked", "long", "stubborn"]);
    let says = ["stopping the command", "(exit 79)"];
    stubborn.ends(79, &says);
    store.touch("killed");
    asked.ends(79, &says);
    assert!(store.file("asked").exists());
    long.ends(79, &says);
    assert!(store.file("cleaned").exists());
}

#[test]
fn a_shell_can_be_asked_for() {
    let store = Store::local();
    let words = ["-c", "echo $((1 + 2)) | tr 3 4; exit 8", "x"];
    store.run(&words).prints(8, "4\n");
}

#[test]
fn the_limit_can_come_from_the_environment() {
    let store = Store::local();
    let _holder = store.hold();
    for (limit, words, code, says) in [
        ("1", "x true", 124, "is still busy"),
        ("1h", "-w 1 x true", 124, "is still busy"),
        ("1h", "-n x true", 75, "is busy"),
        ("soon", "x true", 64, "invalid LEASEHOLD_WAIT \"soon\""),
    ] {
        let run = store.run(words).env("LEASEHOLD_WAIT", limit);
        run.is(code, &[says]);
    }
    let skips = store.run("--skip x true").env("LEASEHOLD_WAIT", "1h");
    skips.is(0, &[]);
}

#[test]
fn the_waiting_can_be_hidden_without_hiding_the_rest() {
    let store = Store::local();
    let _holder = store.hold();
    let hidden = store.run("--progress none -w 1 x true");
    let done = hidden.is(124, &["is still busy"]);
    assert!(!done.stderr.contains("waiting for"), "{done:?}");
    let waiting = store.run("--progress plain x true").start();
    waiting.until_it_says("waiting for \"x\", 1st in line");
}

#[test]
fn any_ancestors_lock_is_refused_at_once() {
    let store = &Store::local();
    // A nested run is refused at any depth, and with any option for busy locks.
    let run = format!("{LEASEHOLD} run");
    for options in ["", "-n", "-q -n", "--skip", "-E 3"] {
        let script = format!("{run} b {run} c {run} {options} a touch ran");
        let script = format!("echo $LEASEHOLD_FENCE; {script}");
        let done = store.script("a", &script).output();
        let fence = format!("fence {}", done.stdout.trim());
        let held = "\"a\" is held by an outer `leasehold run`";
        let why = "you already hold this lock, so waiting for it would never end (exit 64)";
        done.is(64, &[held, why, &fence]);
    }
    assert!(!store.file("ran").exists());
    // Another lock is allowed, and so is a lock of another holder.
    let script = format!("{run} b echo inside");
    store.script("a", &script).prints(0, "inside\n");
}

#[test]
fn environment_has_what_check_needs_and_no_secrets() {
    let store = Store::redis();
    let script = "echo $LEASEHOLD_TOKEN $LEASEHOLD_CHAIN $LEASEHOLD_FENCE $LEASEHOLD_URL $LEASEHOLD_NAMESPACE; date -d $LEASEHOLD_ACQUIRED_AT +%s; date +%s";
    let done = store.script("--namespace prod x", script).output();
    let words: Vec<&str> = done.stdout.split_whitespace().collect();
    let [token, chain, fence, url, namespace, acquired, now] = words[..] else {
        panic!("{done:?}")
    };
    assert!(token.starts_with("lh1."), "{done:?}");
    assert_eq!(token, format!("{chain}#{fence}"));
    assert_eq!((url, namespace), (store.url.as_str(), "prod"));
    let (acquired, now): (i64, i64) = (acquired.parse().unwrap(), now.parse().unwrap());
    assert!((0..60).contains(&(now - acquired)), "{done:?}");

    let inner = format!(
        "echo $LEASEHOLD_TOKEN; {LEASEHOLD} run y sh -c 'echo $LEASEHOLD_CHAIN; echo $LEASEHOLD_TOKEN'"
    );
    let done = store.script("x", &inner).output();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [outer, chain, inner] = lines[..] else {
        panic!("{done:?}")
    };
    let [outer, inner] = [outer, inner].map(|token| token.split('#').next().unwrap());
    assert_eq!(chain, format!("{outer} {inner}"));

    // A canary in the URL, by flag and by environment.
    let guarded = Store::with_password();
    let by_environment = Run::new(store.dir.path()).env("LEASEHOLD_URL", &guarded.url);
    for run in [guarded.run(""), by_environment] {
        let run = run.env("LEASEHOLD_PASSWORD", "S3CR3T").words("x env");
        let done = run.is(0, &[]);
        assert!(done.stdout.contains("LEASEHOLD_FENCE="), "{done:?}");
        assert!(!done.stdout.contains("S3CR3T"), "{done:?}");
    }
}

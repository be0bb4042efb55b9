//! The options of `leasehold run`: limits, stopping, and the messages at the end.

// `setsid`, `env --default-signal` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "real processes in real time")]

mod contention;
mod guardian;
mod lease_loss;
mod left_processes;
mod passthrough;
mod refusals;
mod report;
mod signals;
mod terminal;
mod timestamp;
mod waiting;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, Store, lives, on_each_store};
use testkit::{RedisServer, Reply};

on_each_store! {
    only_so_many_wait,
    a_hold_can_be_limited,
    a_lock_can_be_kept_after_a_success,
}

fn report(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[test]
fn a_busy_lock_can_be_skipped_or_have_its_own_code() {
    let store = &Store::local();
    let holder = store.hold();
    for words in [
        ["--skip", "x", "touch", "ran"].as_slice(),
        &["--skip", "-w", "1", "x", "touch", "ran"],
    ] {
        let done = store.run(words).output();
        assert_eq!(
            (done.code(), done.stdout.as_str(), done.stderr.as_str()),
            (0, "", "")
        );
    }
    for words in [
        ["-E", "9", "-n", "x", "touch", "ran"].as_slice(),
        &["--busy-code=9", "-w", "1", "x", "touch", "ran"],
    ] {
        store.run(words).output().is(9, &["busy", "(exit 9)"]);
    }
    assert!(!store.file("ran").exists());
    store.let_go();
    holder.end().is(0, &[]);
    // The command's own exit codes stay unchanged.
    for code in ["75", "124"] {
        let script = format!("exit {code}");
        let done = store.run(&["-E", "9", "x", "sh", "-c", &script]).output();
        assert_eq!(done.code().to_string(), code);
        let done = store.run(&["--skip", "x", "sh", "-c", &script]).output();
        assert_eq!(done.code().to_string(), code);
    }
}

fn only_so_many_wait(store: &Store) {
    let holder = store.hold();
    store
        .run(&["--max-waiters", "0", "x", "touch", "ran"])
        .output()
        .is(75, &["0 wait already", "(exit 75)"]);
    let first = store.run(&["--max-waiters", "1", "x", "true"]).start();
    first.until_it_says("1st in line");
    store
        .run(&["--max-waiters", "1", "x", "touch", "ran"])
        .output()
        .is(
            75,
            &[
                "is busy, and 1 waits already (exit 75)",
                "queue   1 waiting",
            ],
        );
    let done = store
        .run(&[
            "--max-waiters",
            "1",
            "--skip",
            "-w",
            "1h",
            "x",
            "touch",
            "ran",
        ])
        .output();
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""));
    store.let_go();
    holder.end().is(0, &[]);
    first.end().is(0, &[]);
    assert!(!store.file("ran").exists());
}

fn a_hold_can_be_limited(store: &Store) {
    let script = "(trap '' TERM; while :; do sleep 0.02; done) & echo $! > pid; wait";
    let begun = Instant::now();
    let running = store
        .run(&[
            "--max-hold",
            "7s",
            "--ttl",
            "6s",
            "--report",
            "report",
            "x",
            "sh",
            "-c",
            script,
        ])
        .start();
    let grandchild = store.number("pid");
    running.end().is(
        79,
        &[
            "reached its time limit (7.0s, --max-hold)",
            "reached its time limit",
            "stopped (exit 79)",
        ],
    );
    // The run must not end before a lease has passed.
    assert!(begun.elapsed() > Duration::from_secs(6));
    assert!(!lives(grandchild));
    store.run(&["-n", "x", "true"]).output().is(0, &[]);
    let text = fs::read_to_string(store.file("report")).expect("a report");
    let report = report(&text);
    assert_eq!(report["outcome"], "lost");
    assert_eq!(report["lost_cause"], "--max-hold 7.0s");
}

fn a_lock_can_be_kept_after_a_success(store: &Store) {
    store
        .run(&["--at-least", "1h", "x", "false"])
        .output()
        .is(1, &[]);
    store
        .run(&["-n", "--at-least", "0.02", "x", "sleep", "0.1"])
        .output()
        .is(0, &[]);
    store
        .run(&["-n", "--at-least", "1h", "x", "true"])
        .output()
        .is(0, &[]);
    store.run(&["-n", "x", "true"]).output().is(75, &[]);
    if let Some(server) = &store.redis {
        let Reply::Int(left) = server.cli(&["PTTL", "x"]) else {
            panic!("no time")
        };
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
    let words = ["--ttl", "19s", "--grace", "6.1s", "--on-lost", action];
    let running = store.run(&words).words(&["x", "sh", "-c", &script]).start();
    let pid = store.number("pid");
    store.server().cli(&["DEL", "x"]);
    running.end().is(79, &["(exit 79)"]);
    assert!(!lives(pid), "{action}");
    assert_eq!(store.file("seen").exists(), seen, "{action}");
}

fn is_warned_of_a_loss() {
    let store = Store::redis();
    let script = "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; touch end; exit 0";
    let running = store
        .run(&["--ttl", "6s", "--on-lost", "warn", "x", "sh", "-c", script])
        .start();
    let pid = store.number("pid");
    store.server().cli(&["SET", "x", "somebody"]);
    running.until_it_says("goes on WITHOUT it");
    thread::sleep(Duration::from_secs(2));
    assert!(
        lives(pid),
        "past the time at which it would have been killed"
    );
    store.let_go();
    let done = running.end();
    done.is(79, &["was lost", "the command ended after that (exit 79)"]);
    assert_eq!(done.stderr.matches("WITHOUT").count(), 1, "{done:?}");
    assert!(store.file("end").exists());
}

/// Three commands lose their locks. One stops when it is asked, one needs longer than the longest default grace (5 s), and one never stops.
#[test]
fn the_grace_is_the_time_between_asking_and_killing() {
    let store = Store::redis();
    let start = |lock: &str, grace: &[&str], script: &str| {
        let script = format!("{script}; echo $$ > {lock}; while :; do sleep 0.02; done");
        let run = store.run(&["--ttl", "36s"]).words(grace);
        let running = run.words(&[lock, "sh", "-c", &script]).start();
        store.number(lock);
        running
    };
    let asked = "trap 'sleep 0.1; touch asked; exit 0' TERM";
    let asked = start("asked", &[], asked);
    let long =
        "trap 'while ! [ -e killed ]; do sleep 0.02; done; sleep 5.2; touch cleaned; exit 0' TERM";
    let long = start("long", &["--grace", "11.5s"], long);
    let stubborn = start("stubborn", &["--grace", "0.1"], "trap '' TERM");
    store.server().cli(&["DEL", "asked", "long", "stubborn"]);
    stubborn
        .end()
        .is(79, &["stopping the command", "(exit 79)"]);
    store.touch("killed");
    asked.end().is(79, &["stopping the command", "(exit 79)"]);
    assert!(store.file("asked").exists());
    long.end().is(79, &["stopping the command", "(exit 79)"]);
    assert!(store.file("cleaned").exists());
}

#[test]
fn what_makes_no_sense_is_64() {
    let store = Store::local();
    let bad: [(&[&str], &str); 12] = [
        (&["--skip", "-E", "3", "x", "true"], "cannot be used with"),
        (&["-E", "256", "x", "true"], "256"),
        (&["-E", "-1", "x", "true"], "-1"),
        (
            &["--ttl", "30s", "--grace", "10s", "x", "true"],
            "less than a third",
        ),
        (
            &["--max-hold", "4s", "--grace", "5s", "x", "true"],
            "less than --max-hold",
        ),
        (&["--max-hold", "1ms", "x", "true"], "--max-hold"),
        (&["--at-least", "25h", "x", "true"], "--at-least"),
        (&["--on-lost", "pray", "x", "true"], "signal:NAME"),
        (&["--on-lost", "signal:NONE", "x", "true"], "signal:NAME"),
        (&["--max-waiters", "many", "x", "true"], "--max-waiters"),
        (&["--progress", "loud", "x", "true"], "--progress"),
        (&["-c", "true", "x", "true"], "give either a command or -c"),
    ];
    for (words, says) in bad {
        store.run(words).output().is(64, &[says, "(exit 64)"]);
    }
}

#[test]
fn a_shell_can_be_asked_for() {
    let store = Store::local();
    let done = store
        .run(&["-c", "echo $((1 + 2)) | tr 3 4; exit 8", "x"])
        .output();
    assert_eq!((done.code(), done.stdout.as_str()), (8, "4\n"));
}

#[test]
fn the_limit_can_come_from_the_environment() {
    let store = Store::local();
    let _holder = store.hold();
    let run = |limit: &str, words: &[&str]| store.run(words).env("LEASEHOLD_WAIT", limit).output();
    run("1", &["x", "true"]).is(124, &["is still busy"]);
    run("1h", &["-w", "1", "x", "true"]).is(124, &["is still busy"]);
    run("1h", &["-n", "x", "true"]).is(75, &["is busy"]);
    assert_eq!(run("1h", &["--skip", "x", "true"]).code(), 0);
    run("soon", &["x", "true"]).is(64, &["invalid LEASEHOLD_WAIT \"soon\"", "(exit 64)"]);
}

#[test]
fn the_waiting_can_be_hidden_without_hiding_the_rest() {
    let store = Store::local();
    let _holder = store.hold();
    let done = store
        .run(&["--progress", "none", "-w", "1", "x", "true"])
        .output();
    done.is(124, &["is still busy"]);
    assert!(!done.stderr.contains("waiting for"), "{done:?}");
    let waiting = store.run(&["--progress", "plain", "x", "true"]).start();
    waiting.until_it_says("waiting for \"x\", 1st in line");
}

#[test]
fn any_ancestors_lock_is_refused_at_once() {
    let store = &Store::local();
    // A nested run is refused at any depth, and with any option for busy locks.
    let run = format!("{} run", env!("CARGO_BIN_EXE_leasehold"));
    for options in ["", "-n", "-q -n", "--skip", "-E 3"] {
        let script = format!("{run} b {run} c {run} {options} a touch ran");
        let done = store
            .run(&["a", "sh", "-c", &format!("echo $LEASEHOLD_FENCE; {script}")])
            .output();
        let fence = done.stdout.trim();
        done.is(
            64,
            &[
                "\"a\" is held by an outer `leasehold run`",
                "you already hold this lock",
                &format!("fence {fence}"),
                "(exit 64)",
            ],
        );
    }
    assert!(!store.file("ran").exists());
    // Another lock is allowed, and so is a lock of another holder.
    let script = format!("{run} b echo inside");
    assert_eq!(
        store.run(&["a", "sh", "-c", &script]).output().stdout,
        "inside\n"
    );
}

#[test]
fn environment_has_what_check_needs_and_no_secrets() {
    let store = Store::redis();
    let script = "echo $LEASEHOLD_TOKEN; echo $LEASEHOLD_CHAIN; echo $LEASEHOLD_FENCE; echo $LEASEHOLD_URL; echo $LEASEHOLD_NAMESPACE; date -d $LEASEHOLD_ACQUIRED_AT +%s; date +%s";
    let done = store
        .run(&["--namespace", "prod", "x", "sh", "-c", script])
        .output();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [token, chain, fence, url, namespace, acquired, now] = lines[..] else {
        panic!("{done:?}")
    };
    assert!(token.starts_with("lh1."), "{done:?}");
    assert_eq!(token, format!("{chain}#{fence}"));
    assert_eq!((url, namespace), (store.url.as_str(), "prod"));
    let (acquired, now): (i64, i64) = (acquired.parse().unwrap(), now.parse().unwrap());
    assert!((0..60).contains(&(now - acquired)), "{done:?}");

    let inner = format!(
        "{} run y sh -c 'echo $LEASEHOLD_CHAIN; echo $LEASEHOLD_TOKEN'",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let done = store
        .run(&["x", "sh", "-c", &format!("echo $LEASEHOLD_TOKEN; {inner}")])
        .output();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [outer, chain, inner] = lines[..] else {
        panic!("{done:?}")
    };
    let [outer, inner] = [outer, inner].map(|token| token.split('#').next().unwrap());
    assert_eq!(chain, format!("{outer} {inner}"));

    // A canary in the URL, by flag and by environment.
    let server = RedisServer::builder().password("S3CR3T").start();
    let url = format!("redis://:S3CR3T@127.0.0.1:{}/", server.port());
    let by_flag = common::Run::new(store.dir.path()).words(&["--url", &url]);
    let by_environment = common::Run::new(store.dir.path()).env("LEASEHOLD_URL", &url);
    for run in [by_flag, by_environment] {
        let done = run
            .env("LEASEHOLD_PASSWORD", "S3CR3T")
            .words(&["x", "env"])
            .output();
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(
            done.stdout.contains("LEASEHOLD_FENCE=") && !done.stdout.contains("S3CR3T"),
            "{done:?}"
        );
    }
}

//! `leasehold acquire`, `renew`, `release`, `check`: a lease that outlives the process that took it, and its token.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

mod errors;

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::common::{LIMIT, Store, UNHURRIED, on_each_store, without_settings};
use leasehold::Owner;
use testkit::eventually;

on_each_store! {
    a_token_renews_checks_and_releases_what_outlives_its_process,
    an_expired_lease_is_79_and_never_taken_again,
}

/// A TTL whose end a test waits for. A stall does no harm: nothing needs the lease, and the answer to the renewal does not count.
const EXPIRES_SOON: &str = "1s";

/// The variables of a verb besides the store.
type Variables<'a> = &'a [(&'a str, &'a str)];

fn command(store: &Store, words: &[&str], variables: Variables<'_>) -> Command {
    let mut command = Command::new("timeout");
    // A hanging process is a fault.
    command.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_leasehold")]);
    without_settings(&mut command);
    command
        .args(words)
        .env("LEASEHOLD_URL", &store.url)
        .env("LEASEHOLD_REQUEST_TIMEOUT", UNHURRIED)
        .envs(variables.iter().copied())
        .current_dir(store.dir.path())
        .stdin(Stdio::null());
    command
}

fn leasehold(store: &Store, words: &[&str], variables: Variables<'_>) -> Output {
    command(store, words, variables).output().expect("it runs")
}

#[track_caller]
fn is(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
    if words.is_empty() {
        assert_eq!(said, "");
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Takes "x", and returns its token.
#[track_caller]
fn acquired(store: &Store, ttl: &str) -> String {
    let output = leasehold(store, &["acquire", "x", "--ttl", ttl], &[]);
    is(&output, 0, &[]);
    let text = stdout(&output);
    let token = text.strip_suffix('\n').expect("a line");
    assert!(Owner::parse_with_fence(token).is_some(), "{token}");
    token.to_owned()
}

#[track_caller]
fn is_free(store: &Store) {
    is(&leasehold(store, &["run", "-n", "x", "true"], &[]), 0, &[]);
}

#[track_caller]
fn is_busy(store: &Store) {
    is(
        &leasehold(store, &["run", "-n", "x", "true"], &[]),
        75,
        &["is busy"],
    );
}

fn a_token_renews_checks_and_releases_what_outlives_its_process(store: &Store) {
    let token = acquired(store, "1h");
    let set = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", token.as_str())];
    is_busy(store);
    is(&leasehold(store, &["check"], &set), 0, &[]);
    is(
        &leasehold(store, &["check", "--min", "90m"], &set),
        79,
        &[
            "you hold \"x\" for",
            "not more than 1h30m",
            "leasehold renew --ttl DUR x",
        ],
    );
    is(&leasehold(store, &["renew", "--ttl", "2h"], &set), 0, &[]);
    is(&leasehold(store, &["check", "--min", "90m"], &set), 0, &[]);
    is_busy(store);

    // A token for another lock is invalid.
    for verb in [
        ["check", "y"].as_slice(),
        &["renew", "--ttl", "1h", "y"],
        &["release", "y"],
    ] {
        is(
            &leasehold(store, verb, &set),
            79,
            &["you do not hold \"y\"", "the lock is free"],
        );
    }
    is_busy(store);

    is(&leasehold(store, &["release"], &set), 0, &[]);
    is_free(store);
    is(
        &leasehold(store, &["release"], &set),
        79,
        &[
            "you do not hold \"x\" any more",
            "the lock is free",
            "(exit 79)",
            "unprotected",
        ],
    );
    is(&leasehold(store, &["release", "--if-held"], &set), 0, &[]);
    is(
        &leasehold(store, &["renew", "--ttl", "1h"], &set),
        79,
        &["you do not hold"],
    );
    is(
        &leasehold(store, &["check"], &set),
        79,
        &["you do not hold"],
    );
    is_free(store);
}

#[test]
fn the_environment_carries_it_from_step_to_step() {
    let store = &Store::local();
    let mut step = command(
        store,
        &[
            "acquire", "a:b/c", "--ttl", "1h", "--env", "--note", "step #1",
        ],
        &[],
    );
    let file = File::create(store.file("env")).expect("a file");
    assert!(step.stdout(file).status().expect("it runs").success());
    let text = fs::read_to_string(store.file("env")).expect("the file");
    let names: Vec<_> = text
        .lines()
        .map(|line| line.split_once('=').expect("a variable").0)
        .collect();
    assert_eq!(
        names,
        ["LEASEHOLD_LOCK", "LEASEHOLD_TOKEN", "LEASEHOLD_FENCE"]
    );

    // As a CI runner reads it, and as a shell does.
    let set: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    is(&leasehold(store, &["check", "--min", "1m"], &set), 0, &[]);
    let mut shell = Command::new("sh");
    without_settings(&mut shell);
    let script = "set -a; . ./env; \"$0\" release && echo \"$LEASEHOLD_LOCK $LEASEHOLD_FENCE\"";
    let output = shell
        .args(["-c", script, env!("CARGO_BIN_EXE_leasehold")])
        .env("LEASEHOLD_URL", &store.url)
        .current_dir(store.dir.path())
        .output()
        .expect("a shell");
    is(&output, 0, &[]);
    let fence = set[2].1;
    assert!(set[1].1.ends_with(&format!("step%20%231#{fence}")));
    assert_eq!(stdout(&output), format!("a:b/c {fence}\n"));

    for words in [
        ["x;reboot"].as_slice(),
        &["a b"],
        &["x", "--note", "$(reboot)"],
    ] {
        let refused = leasehold(
            store,
            &[&["acquire", "--ttl", "1h", "--env"], words].concat(),
            &[],
        );
        is(&refused, 64, &["--env cannot print", "use --json"]);
    }
    is_free(store);
}

#[test]
fn json_says_it_all() {
    let store = &Store::local();
    let output = leasehold(store, &["acquire", "a b", "--ttl", "1h", "--json"], &[]);
    is(&output, 0, &[]);
    assert!(stdout(&output).starts_with("{\"schema\":\"leasehold.acquire/1\","));
    let taken: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&taken["lock"], &taken["ttl_ms"]),
        (&"a b".into(), &3_600_000.into())
    );
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert!(
        number(&taken["expires_in_ms"]) <= 3_600_000 && number(&taken["expires_in_ms"]) > 3_000_000
    );
    number(&taken["waited_ms"]);
    let (_, fence) =
        Owner::parse_with_fence(taken["token"].as_str().expect("a text")).expect("it is whole");
    assert_eq!(fence.get(), number(&taken["fence"]));
    let set = [
        ("LEASEHOLD_LOCK", "a b"),
        ("LEASEHOLD_TOKEN", taken["token"].as_str().expect("a text")),
    ];

    let output = leasehold(store, &["check", "--json"], &set);
    is(&output, 0, &[]);
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(seen["schema"], "leasehold.check/1");
    assert_eq!((&seen["ok"], &seen["held"]), (&true.into(), &true.into()));
    assert_eq!(seen["fence"], taken["fence"]);

    is(&leasehold(store, &["release"], &set), 0, &[]);
    let output = leasehold(store, &["check", "--json"], &set);
    is(&output, 79, &["you do not hold \"a b\""]);
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&seen["held"], &seen["expires_in_ms"]),
        (&false.into(), &0.into())
    );
}

fn an_expired_lease_is_79_and_never_taken_again(store: &Store) {
    let token = acquired(store, "1h");
    let set = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", token.as_str())];
    if store.is_local() {
        leasehold(store, &["renew", "--ttl", EXPIRES_SOON], &set);
    } else {
        store.ends_in("x", 1);
    }
    eventually(LIMIT, "it expires", || {
        leasehold(store, &["check"], &set).status.code() == Some(79)
    });
    is(
        &leasehold(store, &["renew", "--ttl", "1h"], &set),
        79,
        &["the lock is free"],
    );
    is_free(store);
    let next = acquired(store, "1h");
    is(
        &leasehold(store, &["renew", "--ttl", "1h"], &set),
        79,
        &["held by"],
    );
    is(
        &leasehold(store, &["release"], &set),
        79,
        &["held by", "unprotected"],
    );
    is_busy(store);
    // By stdin, out of sight of `ps`.
    let mut release = command(store, &["release", "x", "--token", "-"], &[]);
    let mut release = release.stdin(Stdio::piped()).spawn().expect("it runs");
    writeln!(release.stdin.take().expect("stdin"), "{next}").expect("it reads");
    assert!(release.wait().expect("it ends").success());
    is_free(store);
}

#[test]
fn namespaces_keep_locks_apart() {
    let store = &Store::local();
    let inside = [("LEASEHOLD_NAMESPACE", "team")];
    let output = leasehold(store, &["acquire", "x", "--ttl", "1h"], &inside);
    is(&output, 0, &[]);
    is_free(store);
    let token = stdout(&output);
    let set = [
        ("LEASEHOLD_LOCK", "x"),
        ("LEASEHOLD_TOKEN", token.trim_end()),
    ];
    is(
        &leasehold(store, &["release"], &set),
        79,
        &["you do not hold"],
    );
    is(
        &leasehold(store, &["release"], &[set.as_slice(), &inside].concat()),
        0,
        &[],
    );
}

#[test]
fn who_waits_is_let_in_by_the_release_of_a_token() {
    let store = Store::local();
    let token = acquired(&store, "1h");
    let waiting = store.run(&["x", "touch", "ran"]).start();
    waiting.until_it_says("waiting for \"x\"");
    is(
        &leasehold(&store, &["release", "x"], &[("LEASEHOLD_TOKEN", &token)]),
        0,
        &[],
    );
    waiting.end().is(0, &[]);
    assert!(store.file("ran").exists());
}

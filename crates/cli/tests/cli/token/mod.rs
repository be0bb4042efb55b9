//! `leasehold acquire`, `renew`, `release`, `check`: a lease that outlives the process that took it, and its token.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

mod errors;

use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;

use crate::common::{LIMIT, Run, Store, Words, on_each_store};
use leasehold::Owner;
use testkit::eventually;

on_each_store! {
    a_token_renews_checks_and_releases_what_outlives_its_process,
    an_expired_lease_is_79_and_never_taken_again,
}

/// A TTL whose end a test waits for. A stall does no harm: nothing needs the lease, and the answer to the renewal does not count.
const EXPIRES_SOON: &str = "1s";

/// Takes "x" for long, and returns its token.
#[track_caller]
fn acquired(store: &Store) -> String {
    let done = store.leasehold("acquire x --ttl 1h").says_nothing(0);
    let token = done.stdout.strip_suffix('\n').expect("a line");
    assert!(Owner::parse_with_fence(token).is_some(), "{token}");
    token.to_owned()
}

/// A verb with this token of "x" in its environment.
fn with_token(store: &Store, token: &str, words: &(impl Words + ?Sized)) -> Run {
    let run = store.leasehold(words).env("LEASEHOLD_LOCK", "x");
    run.env("LEASEHOLD_TOKEN", token)
}

fn a_token_renews_checks_and_releases_what_outlives_its_process(store: &Store) {
    let token = acquired(store);
    let step = |words: &str| with_token(store, &token, words);
    store.is_busy();
    step("check").says_nothing(0);
    let short = [
        "you hold \"x\" for",
        "not more than 1h30m",
        "leasehold renew --ttl DUR x",
    ];
    step("check --min 90m").is(79, &short);
    step("renew --ttl 2h").says_nothing(0);
    step("check --min 90m").says_nothing(0);
    store.is_busy();

    // A token for another lock is invalid.
    for verb in ["check y", "renew --ttl 1h y", "release y"] {
        step(verb).is(79, &["you do not hold \"y\"", "the lock is free"]);
    }
    store.is_busy();

    step("release").says_nothing(0);
    store.is_free();
    let lost = [
        "you do not hold \"x\" any more",
        "the lock is free",
        "unprotected",
    ];
    step("release").is(79, &lost);
    step("release --if-held").says_nothing(0);
    for verb in ["renew --ttl 1h", "check"] {
        step(verb).is(79, &["you do not hold"]);
    }
    store.is_free();
}

#[test]
fn the_environment_carries_it_from_step_to_step() {
    let store = &Store::local();
    let file = File::create(store.file("env")).expect("a file");
    let note = ["--env", "--note", "step #1"];
    let step = store.leasehold("acquire a:b/c --ttl 1h").words(&note);
    assert!(step.stdout(file).raw().status.success());
    let text = fs::read_to_string(store.file("env")).expect("the file");
    let set: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let [
        ("LEASEHOLD_LOCK", _),
        ("LEASEHOLD_TOKEN", token),
        ("LEASEHOLD_FENCE", fence),
    ] = set[..]
    else {
        panic!("{text}")
    };
    assert!(token.ends_with(&format!("step%20%231#{fence}")));

    // As a CI runner reads it, and as a shell does.
    let check = store
        .leasehold("check --min 1m")
        .env("LEASEHOLD_TOKEN", token);
    check.env("LEASEHOLD_LOCK", "a:b/c").says_nothing(0);
    let script = "set -a; . ./env; leasehold release && echo \"$LEASEHOLD_LOCK $LEASEHOLD_FENCE\"";
    let shell = store.program(&["sh", "-c", script]);
    let shell = shell.env("LEASEHOLD_URL", &store.url);
    let done = shell.prints(0, &format!("a:b/c {fence}\n"));
    assert_eq!(done.stderr, "");

    for words in [&["x;reboot"][..], &["a b"], &["x", "--note", "$(reboot)"]] {
        let refused = store.leasehold("acquire --ttl 1h --env").words(words);
        refused.is(64, &["--env cannot print", "use --json"]);
    }
    store.is_free();
}

#[test]
fn json_says_it_all() {
    let store = &Store::local();
    let done = store.leasehold(&["acquire", "a b", "--ttl", "1h", "--json"]);
    let done = done.says_nothing(0);
    assert!(
        done.stdout
            .starts_with("{\"schema\":\"leasehold.acquire/1\",")
    );
    let acquired = done.json();
    assert_eq!(acquired["lock"], "a b");
    assert_eq!(acquired["ttl_ms"], 3_600_000);
    let left = acquired["expires_in_ms"].as_u64().expect("a number");
    assert!((3_000_001..=3_600_000).contains(&left), "{acquired}");
    assert!(acquired["waited_ms"].is_u64(), "{acquired}");
    let token = acquired["token"].as_str().expect("a text");
    let (_, fence) = Owner::parse_with_fence(token).expect("it is whole");
    assert_eq!(acquired["fence"], fence.get());

    let step = |words: &str| with_token(store, token, words).env("LEASEHOLD_LOCK", "a b");
    let seen = step("check --json").says_nothing(0).json();
    assert_eq!(seen["schema"], "leasehold.check/1");
    assert_eq!(seen["fence"], acquired["fence"]);
    for field in ["ok", "held"] {
        assert_eq!(seen[field], true, "{seen}");
    }
    step("release").says_nothing(0);
    let seen = step("check --json")
        .is(79, &["you do not hold \"a b\""])
        .json();
    assert_eq!(seen["held"], false, "{seen}");
    assert_eq!(seen["expires_in_ms"], 0, "{seen}");
}

fn an_expired_lease_is_79_and_never_taken_again(store: &Store) {
    let token = acquired(store);
    let step = |words: &str| with_token(store, &token, words);
    if store.is_local() {
        step(&format!("renew --ttl {EXPIRES_SOON}")).output();
    } else {
        store.ends_in("x", 1);
    }
    eventually(LIMIT, "it expires", || step("check").output().code() == 79);
    step("renew --ttl 1h").is(79, &["the lock is free"]);
    store.is_free();
    let next = acquired(store);
    step("renew --ttl 1h").is(79, &["held by"]);
    step("release").is(79, &["held by", "unprotected"]);
    store.is_busy();
    // By stdin, out of sight of `ps`.
    let release = store.leasehold("release x --token -");
    let mut release = release.stdin(Stdio::piped()).start();
    let mut stdin = release.child.stdin.take().expect("stdin");
    writeln!(stdin, "{next}").expect("it reads");
    drop(stdin);
    release.ends(0, &[]);
    store.is_free();
}

#[test]
fn namespaces_keep_locks_apart() {
    let store = &Store::local();
    let inside = |run: Run| run.env("LEASEHOLD_NAMESPACE", "team");
    let taken = inside(store.leasehold("acquire x --ttl 1h")).says_nothing(0);
    store.is_free();
    let release = || with_token(store, taken.stdout.trim_end(), "release");
    release().is(79, &["you do not hold"]);
    inside(release()).says_nothing(0);
}

#[test]
fn who_waits_is_let_in_by_the_release_of_a_token() {
    let store = Store::local();
    let token = acquired(&store);
    let waiting = store.run("x touch ran").start();
    waiting.until_it_says("waiting for \"x\"");
    with_token(&store, &token, "release x").says_nothing(0);
    waiting.ends(0, &[]);
    assert!(store.file("ran").exists());
}

//! `acquire` without success, and invalid tokens.

use std::fs::File;
use std::io::Write;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::eventually;

use super::{acquired, with_token};
use crate::common::{LIMIT, Store, on_each_store};

on_each_store! {
    what_nobody_can_be_told_of_is_given_back,
    a_signal_while_waiting_leaves_nothing_behind,
    a_signal_before_the_token_is_written_gives_the_lock_back,
    a_busy_lock_is_75_or_124,
}

fn what_nobody_can_be_told_of_is_given_back(store: &Store) {
    let device = File::options().write(true).open("/dev/full");
    let full = store.leasehold("acquire x --ttl 1h");
    let output = full.stdout(device.expect("it is there")).raw();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(70), "{said}");
    for words in ["cannot be written to stdout", "was released again"] {
        assert!(said.contains(words), "{said}");
    }
    store.is_free();

    let script = "exec leasehold acquire x --ttl 1h >&-";
    let closed = store.program(&["sh", "-c", script]);
    let closed = closed.env("LEASEHOLD_URL", &store.url);
    closed.is(64, &["stdout is closed", "was not taken"]);
    store.is_free();
}

fn a_signal_while_waiting_leaves_nothing_behind(store: &Store) {
    let token = acquired(store);
    let waiting = store.leasehold("acquire x --ttl 1h").start();
    waiting.until_it_says("waiting for \"x\"");
    waiting.signal(Signal::SIGTERM);
    waiting.prints(143, "");
    with_token(store, &token, "release").says_nothing(0);
    store.is_free();
}

fn a_signal_before_the_token_is_written_gives_the_lock_back(store: &Store) {
    // The pipe is full, and no process reads it.
    let (unread, mut full) = std::io::pipe().expect("a pipe");
    fcntl(&full, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    fcntl(&full, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
    let mut stuck = store.leasehold("acquire x --ttl 1h").stdout(full).spawn();
    eventually(LIMIT, "it has the lock", || {
        store.run("-n x true").output().code() == 75
    });
    let pid = Pid::from_raw(i32::try_from(stuck.id()).expect("a process id"));
    kill(pid, Signal::SIGTERM).expect("it lives");
    eventually(LIMIT, "it ends", || {
        stuck.try_wait().expect("a state").is_some()
    });
    assert_eq!(stuck.wait().expect("it has ended").code(), Some(143));
    drop(unread);
    store.is_free();
}

fn a_busy_lock_is_75_or_124(store: &Store) {
    acquired(store);
    for (option, code, next) in [
        ("-n", 75, "leasehold acquire --ttl 1h30m -w 5m x\n"),
        ("-w 1", 124, "leasehold acquire --ttl 1h30m x\n"),
    ] {
        let run = store.leasehold("acquire x --ttl 90m").words(option);
        let done = run.is(code, &["\"x\" is ", "busy", next]);
        assert_eq!(done.stdout, "");
    }
}

#[test]
fn what_is_missing_or_wrong_is_64() {
    let store = &Store::local();
    let why = [
        "--ttl is required",
        "nothing renews the lease",
        "leasehold run",
    ];
    store.leasehold("acquire x").is(64, &why);
    let verbs = ["check", "release", "release --if-held", "renew --ttl 1h"];
    for verb in verbs {
        let no_lock = ["LEASEHOLD_LOCK is not set", "counts only if it is exported"];
        store.leasehold(verb).is(64, &no_lock);
        let no_token = ["no token given", "LEASEHOLD_TOKEN is not set"];
        with_token(store, "", verb).is(64, &no_token);
        let wrong = ["invalid token", "is not one of ours"];
        let done = with_token(store, "S3CR3T", verb).is(64, &wrong);
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
    store.is_free();

    // Simulates a file format that takes `#` as the start of a comment, and so cuts off the fence.
    let token = acquired(store);
    let owner = token.split('#').next().expect("it has a fence");
    for verb in verbs {
        let says = [
            "invalid token",
            "has no fence at its end",
            "<token>#<fence>",
        ];
        with_token(store, owner, verb).is(64, &says);
    }
    with_token(store, &token, "release").says_nothing(0);
}

#[test]
fn a_store_that_does_not_answer_is_69_and_never_79() {
    let store = Store::redis();
    let token = acquired(&store);
    for verb in ["check", "release", "release --if-held", "renew --ttl 1h"] {
        let run = with_token(&store, &token, verb);
        // No server is there.
        let run = run.env("LEASEHOLD_URL", "redis://:S3CR3T@127.0.0.1:1/");
        let done = run.is(69, &["(exit 69)"]);
        assert!(!done.stderr.contains("S3CR3T"), "{done:?}");
    }
    let writes = |replicas: &str| {
        let server = store.server();
        server.cli(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    };
    writes("1");
    let renew = with_token(&store, &token, "renew --ttl 1h");
    renew.is(69, &["The renewal is not confirmed"]);
    writes("0");
    with_token(&store, &token, "release").says_nothing(0);
}

#[test]
fn a_pipeline_does_not_wait_for_its_own_lease() {
    let store = &Store::local();
    let token = acquired(store);
    for words in ["run x true", "acquire --ttl 1h x"] {
        let run = with_token(store, &token, words);
        run.is(64, &["you already hold this lock"]);
    }
}

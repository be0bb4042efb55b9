//! `acquire` without success, and invalid tokens.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::eventually;

use super::{acquired, command, is, is_free, leasehold, stdout};
use crate::common::{LIMIT, Store, on_each_store, without_settings};

on_each_store! {
    what_nobody_can_be_told_of_is_given_back,
    a_signal_while_waiting_leaves_nothing_behind,
    a_signal_before_the_token_is_written_gives_the_lock_back,
    a_busy_lock_is_75_or_124,
}

fn what_nobody_can_be_told_of_is_given_back(store: &Store) {
    let mut full = command(store, &["acquire", "x", "--ttl", "1h"], &[]);
    let device = File::options()
        .write(true)
        .open("/dev/full")
        .expect("it is there");
    let full = full
        .stdout(device)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let output = full.wait_with_output().expect("it ends");
    is(
        &output,
        70,
        &["cannot be written to stdout", "was released again"],
    );
    is_free(store);

    let mut shell = Command::new("sh");
    without_settings(&mut shell);
    let output = shell
        .args([
            "-c",
            "exec \"$0\" acquire x --ttl 1h >&-",
            env!("CARGO_BIN_EXE_leasehold"),
        ])
        .env("LEASEHOLD_URL", &store.url)
        .output()
        .expect("a shell");
    is(&output, 64, &["stdout is closed", "was not taken"]);
    is_free(store);
}

fn a_signal_while_waiting_leaves_nothing_behind(store: &Store) {
    let token = acquired(store, "1h");
    // Not under `timeout`, which would get the signal.
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    without_settings(&mut waiting);
    let said = File::create(store.file("said")).expect("a file");
    let mut waiting = waiting
        .args(["acquire", "x", "--ttl", "1h"])
        .env("LEASEHOLD_URL", &store.url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(said)
        .spawn()
        .expect("it runs");
    eventually(LIMIT, "it waits", || {
        fs::read_to_string(store.file("said")).is_ok_and(|said| said.contains("waiting for \"x\""))
    });
    let pid = Pid::from_raw(i32::try_from(waiting.id()).expect("a process id"));
    kill(pid, Signal::SIGTERM).expect("it lives");
    eventually(LIMIT, "it ends", || {
        waiting.try_wait().expect("a state").is_some()
    });
    let output = waiting.wait_with_output().expect("it has ended");
    assert_eq!(
        (output.status.code(), stdout(&output)),
        (Some(143), String::new())
    );
    let released = leasehold(store, &["release", "x"], &[("LEASEHOLD_TOKEN", &token)]);
    is(&released, 0, &[]);
    is_free(store);
}

fn a_signal_before_the_token_is_written_gives_the_lock_back(store: &Store) {
    // The pipe is full, and no process reads it.
    let (unread, mut full) = std::io::pipe().expect("a pipe");
    fcntl(&full, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    fcntl(&full, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
    let mut stuck = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    without_settings(&mut stuck);
    let mut stuck = stuck
        .args(["acquire", "x", "--ttl", "1h"])
        .env("LEASEHOLD_URL", &store.url)
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    eventually(LIMIT, "it has the lock", || {
        leasehold(store, &["run", "-n", "x", "true"], &[])
            .status
            .code()
            == Some(75)
    });
    let pid = Pid::from_raw(i32::try_from(stuck.id()).expect("a process id"));
    kill(pid, Signal::SIGTERM).expect("it lives");
    eventually(LIMIT, "it ends", || {
        stuck.try_wait().expect("a state").is_some()
    });
    assert_eq!(stuck.wait().expect("it has ended").code(), Some(143));
    drop(unread);
    is_free(store);
}

fn a_busy_lock_is_75_or_124(store: &Store) {
    acquired(store, "1h");
    for (words, code, next) in [
        (
            ["-n"].as_slice(),
            75,
            "leasehold acquire --ttl 1h30m -w 5m x\n",
        ),
        (&["-w", "1"], 124, "leasehold acquire --ttl 1h30m x\n"),
    ] {
        let words = [&["acquire", "x", "--ttl", "90m"], words].concat();
        let output = leasehold(store, &words, &[]);
        is(&output, code, &["\"x\" is ", "busy", next]);
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn what_is_missing_or_wrong_is_64() {
    let store = &Store::local();
    let output = leasehold(store, &["acquire", "x"], &[]);
    is(
        &output,
        64,
        &[
            "--ttl is required",
            "nothing renews the lease",
            "leasehold run",
        ],
    );
    for verb in [
        ["check"].as_slice(),
        &["release"],
        &["renew", "--ttl", "1h"],
    ] {
        is(
            &leasehold(store, verb, &[]),
            64,
            &[
                "no lock given",
                "LEASEHOLD_LOCK is not set",
                "counts only if it is exported",
            ],
        );
        let lock = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", "")];
        is(
            &leasehold(store, verb, &lock),
            64,
            &["no token given", "LEASEHOLD_TOKEN is not set"],
        );
        let wrong = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", "S3CR3T")];
        let output = leasehold(store, verb, &wrong);
        is(&output, 64, &["invalid token", "is not one of ours"]);
        assert!(!format!("{output:?}").contains("S3CR3T"), "{output:?}");
    }
    is_free(store);

    // Simulates a file format that takes `#` as the start of a comment, and so cuts off the fence.
    let token = acquired(store, "1h");
    let owner = token.split('#').next().expect("it has a fence");
    let cut_off = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", owner)];
    for verb in [
        ["check"].as_slice(),
        &["release", "--if-held"],
        &["renew", "--ttl", "1h"],
    ] {
        let output = leasehold(store, verb, &cut_off);
        is(
            &output,
            64,
            &[
                "invalid token",
                "has no fence at its end",
                "<token>#<fence>",
            ],
        );
    }
    is(
        &leasehold(store, &["release", "x"], &[("LEASEHOLD_TOKEN", &token)]),
        0,
        &[],
    );
}

#[test]
fn a_store_that_does_not_answer_is_69_and_never_79() {
    let store = Store::redis();
    let token = acquired(&store, "1h");
    let set = [
        ("LEASEHOLD_LOCK", "x"),
        ("LEASEHOLD_TOKEN", token.as_str()),
        // No server is there.
        ("LEASEHOLD_URL", "redis://:S3CR3T@127.0.0.1:1/"),
    ];
    for verb in [
        ["check"].as_slice(),
        &["release"],
        &["release", "--if-held"],
        &["renew", "--ttl", "1h"],
    ] {
        let output = leasehold(&store, verb, &set);
        is(&output, 69, &["(exit 69)"]);
        assert!(!format!("{output:?}").contains("S3CR3T"), "{output:?}");
    }
    let full = store.server();
    full.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let output = leasehold(&store, &["renew", "--ttl", "1h"], &set[..2]);
    is(&output, 69, &["The renewal is not confirmed"]);
    full.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    is(&leasehold(&store, &["release"], &set[..2]), 0, &[]);
}

#[test]
fn a_pipeline_does_not_wait_for_its_own_lease() {
    let store = &Store::local();
    let token = acquired(store, "1h");
    let set = [("LEASEHOLD_LOCK", "x"), ("LEASEHOLD_TOKEN", token.as_str())];
    for verb in [
        ["run", "x", "true"].as_slice(),
        &["acquire", "--ttl", "1h", "x"],
    ] {
        let output = leasehold(store, verb, &set);
        is(&output, 64, &["you already hold this lock"]);
    }
}

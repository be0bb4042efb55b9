//! Signals to `leasehold run` while its command runs: they are forwarded, and the lock is kept until the command
//! has ended.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::process::Command;

use crate::common::{LIMIT, Store, lives, on_each_store};
use nix::sys::signal::Signal;
use testkit::eventually;

on_each_store! {
    are_passed_on_and_the_status_is_the_commands,
    the_lock_is_kept_until_the_command_has_ended,
}

fn are_passed_on_and_the_status_is_the_commands(store: &Store) {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2] {
        let (name, ready) = (
            signal.as_str().trim_start_matches("SIG"),
            format!("ready-{signal}"),
        );
        let script = format!("trap 'exit 42' {name}; touch {ready}; while :; do sleep 0.02; done");
        let running = store.run(&["x", "sh", "-c", &script]).start();
        store.until(&ready);
        running.signal(signal);
        assert_eq!(running.end().code(), 42, "{signal}");
    }
    let running = store
        .run(&["x", "sh", "-c", "touch ready; exec sleep 1000"])
        .start();
    store.until("ready");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code(), 143);
    store.run(&["-n", "x", "true"]).output().is(0, &[]);
}

fn the_lock_is_kept_until_the_command_has_ended(store: &Store) {
    let script = "trap 'touch asked; while ! [ -e let-go ]; do sleep 0.02; done; exit 3' TERM; touch ready; while :; do sleep 0.02; done";
    let running = store.run(&["--ttl", "9s", "x", "sh", "-c", script]).start();
    store.until("ready");
    running.signal(Signal::SIGTERM);
    store.until("asked");
    store.until_renewed();
    store.run(&["-n", "x", "touch", "ran"]).output().is(75, &[]);
    assert!(!store.file("ran").exists());
    store.let_go();
    let done = running.end();
    assert!(
        done.code() == 3 && !done.stderr.contains("leasehold"),
        "{done:?}"
    );
}

#[test]
fn reach_all_of_the_commands_processes() {
    let store = Store::local();
    let running = store
        .run(&["x", "sh", "-c", "sleep 1000 & echo $! > pid; wait"])
        .start();
    let pid = store.number("pid");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code(), 143);
    eventually(LIMIT, "the grandchild is dead", || !lives(pid));
}

/// Not only the command: its children get each signal once, in the background too.
#[test]
fn each_reaches_a_grandchild_once() {
    for signal in ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2"] {
        let store = Store::local();
        // Without `env`, background processes of a shell ignore INT and QUIT.
        let grandchild = format!(
            "trap 'echo heard >> heard' {signal}; touch ready; while ! [ -e let-go ]; do sleep 0.02; done"
        );
        let script = format!(
            "trap : {signal}; env --default-signal={signal} sh -c \"{grandchild}\" & while ! [ -e let-go ]; do sleep 0.02; done; exit 7"
        );
        let running = store.run(&["x", "sh", "-c", &script]).start();
        store.until("ready");
        running.signal(signal_named(signal));
        store.until("heard");
        store.let_go();
        assert_eq!(running.end().code(), 7, "{signal}");
        let heard = std::fs::read_to_string(store.file("heard")).unwrap();
        assert_eq!(heard, "heard\n", "{signal}");
        store.run(&["-n", "x", "true"]).output().is(0, &[]);
    }
}

fn signal_named(name: &str) -> Signal {
    format!("SIG{name}").parse().expect("a signal")
}

#[test]
fn that_were_ignored_stay_ignored() {
    let store = Store::local();
    // Like `nohup`, but with `env`, to be independent of the shell.
    let wrapper = env!("CARGO_BIN_EXE_leasehold");
    let script = "touch ready; while ! [ -e let-go ]; do sleep 0.02; done; exit 6";
    let mut command = Command::new("env");
    command.args([
        "--default-signal=TERM",
        "--ignore-signal=HUP",
        "setsid",
        wrapper,
        "run",
        "--url",
        &store.url,
        "x",
        "sh",
        "-c",
        script,
    ]);
    let mut running = command.current_dir(store.dir.path()).spawn().unwrap();
    store.until("ready");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGHUP).unwrap();
    store.let_go();
    let mut status = None;
    eventually(LIMIT, "it ends", || {
        status = running.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(6));
}

//! Signals to `leasehold run` while its command runs: they are forwarded, and the lock is kept until the command
//! has ended.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::process::Command;

use crate::common::{LEASEHOLD, LIMIT, Store, on_each_store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::eventually;

const SIGNALS: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

on_each_store! {
    are_passed_on_and_the_status_is_the_commands,
    the_lock_is_kept_until_the_command_has_ended,
}

fn name(signal: Signal) -> &'static str {
    signal.as_str().trim_start_matches("SIG")
}

fn are_passed_on_and_the_status_is_the_commands(store: &Store) {
    for signal in SIGNALS {
        let (name, ready) = (name(signal), format!("ready-{signal}"));
        let script = format!("trap 'exit 42' {name}; touch {ready}; while :; do sleep 0.02; done");
        let running = store.script("x", &script).start();
        store.until(&ready);
        running.signal(signal);
        running.ends(42, &[]);
    }
    let running = store.script("x", "touch ready; exec sleep 1000").start();
    store.until("ready");
    running.signal(Signal::SIGTERM);
    running.ends(143, &[]);
    store.is_free();
}

fn the_lock_is_kept_until_the_command_has_ended(store: &Store) {
    let script = "trap 'touch asked; while ! [ -e let-go ]; do sleep 0.02; done; exit 3' TERM; touch ready; while :; do sleep 0.02; done";
    let running = store.script("--ttl 9s x", script).start();
    store.until("ready");
    running.signal(Signal::SIGTERM);
    store.until("asked");
    store.until_renewed();
    store.is_busy();
    store.let_go();
    let done = running.ends(3, &[]);
    assert!(!done.stderr.contains("leasehold"), "{done:?}");
}

/// Not only the command: its children get each signal once, in the background too.
#[test]
fn each_reaches_a_grandchild_once() {
    for signal in SIGNALS {
        let (store, name) = (Store::local(), name(signal));
        // Without `env`, background processes of a shell ignore INT and QUIT.
        let grandchild = format!(
            "trap 'echo heard >> heard' {name}; touch ready; while ! [ -e let-go ]; do sleep 0.02; done"
        );
        let script = format!(
            "trap : {name}; env --default-signal={name} sh -c \"{grandchild}\" & while ! [ -e let-go ]; do sleep 0.02; done; exit 7"
        );
        let running = store.script("x", &script).start();
        store.until("ready");
        running.signal(signal);
        store.until("heard");
        store.let_go();
        running.ends(7, &[]);
        let heard = std::fs::read_to_string(store.file("heard")).unwrap();
        assert_eq!(heard, "heard\n", "{signal}");
        store.is_free();
    }
}

#[test]
fn that_were_ignored_stay_ignored() {
    let store = Store::local();
    // Like `nohup`, but with `env`, to be independent of the shell.
    let script = "touch ready; while ! [ -e let-go ]; do sleep 0.02; done; exit 6";
    let mut command = Command::new("env");
    command
        .args(["--default-signal=TERM", "--ignore-signal=HUP", "setsid"])
        .args([LEASEHOLD, "run", "--url", &store.url])
        .args(["x", "sh", "-c", script]);
    let mut running = command.current_dir(store.dir.path()).spawn().unwrap();
    store.until("ready");
    let pid = Pid::from_raw(i32::try_from(running.id()).unwrap());
    kill(pid, Signal::SIGHUP).unwrap();
    store.let_go();
    eventually(LIMIT, "it ends", || running.try_wait().unwrap().is_some());
    assert_eq!(running.wait().unwrap().code(), Some(6));
}

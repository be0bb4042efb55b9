//! Interrupted loads.

use nix::sys::signal::Signal;
use testkit::eventually;

use super::{cache, load, runs, shell};
use crate::common::pty::Session;
use crate::common::{LEASEHOLD, LIMIT, Store, lives, on_each_store_of_entries};

on_each_store_of_entries! {
    who_waits_takes_over_from_a_loader_that_was_killed,
    a_signal_ends_the_command_and_says_nothing_about_it,
    what_a_command_printed_that_was_told_to_end_is_no_value,
    a_command_that_is_stopped_hears_a_signal,
    a_signal_ends_the_waiting_for_another,
    a_reader_that_does_not_read_does_not_keep_us,
}

/// The first run of the script hangs.
const HANG: &str = "if mkdir once 2>/dev/null; then echo $$ > first; exec sleep 600; fi; echo v";

fn who_waits_takes_over_from_a_loader_that_was_killed(store: &Store) {
    let first = load(store, "", HANG).start();
    let command = store.number("first");
    let second = load(store, "", HANG).start();
    first.signal(Signal::SIGKILL);
    second.prints(0, "v\n");
    eventually(LIMIT, "the command has died with it", || !lives(command));
}

fn a_signal_ends_the_command_and_says_nothing_about_it(store: &Store) {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        std::fs::remove_dir(store.file("once")).ok();
        std::fs::remove_file(store.file("first")).ok();
        let loader = load(store, "--back-off 1h", HANG).start();
        let command = store.number("first");
        loader.signal(signal);
        assert_eq!(loader.prints(code, "").stderr, "", "{signal}");
        assert!(!lives(command), "{signal}");
        load(store, "--back-off 1h", HANG).prints(0, "v\n");
        cache(store, "invalidate", "--remove k").is(0, &[]);
    }
}

fn what_a_command_printed_that_was_told_to_end_is_no_value(store: &Store) {
    let script = "trap 'echo v; exit 0' TERM USR1; echo run >> runs; while :; do sleep 0.02; done";
    for (signal, code, value) in [(Signal::SIGTERM, 143, ""), (Signal::SIGUSR1, 0, "v\n")] {
        let before = runs(store);
        let loader = load(store, "", script).start();
        eventually(LIMIT, "it runs", || runs(store) > before);
        loader.signal(signal);
        // After SIGTERM the output may be only a part, so leasehold does not use it as the value.
        loader.prints(code, value);
        assert_eq!(cache(store, "get", "k").output().stdout, value);
        cache(store, "invalidate", "--remove k").is(0, &[]);
    }
}

fn a_command_that_is_stopped_hears_a_signal(store: &Store) {
    let loader = load(store, "", "echo run >> runs; kill -STOP $$; echo v").start();
    eventually(LIMIT, "it runs", || runs(store) > 0);
    loader.signal(Signal::SIGTERM);
    loader.prints(143, "");
}

fn a_signal_ends_the_waiting_for_another(store: &Store) {
    let loader = load(store, "", HANG).start();
    store.number("first");
    let mut waiting = load(store, "--wait 1h", "echo run >> runs").start();
    // A process without a handler would die of the signal, without an exit code.
    eventually(LIMIT, "it waits", || {
        !waiting.has_ended() && catches(waiting.child.id())
    });
    waiting.signal(Signal::SIGTERM);
    assert_eq!((waiting.end().code(), runs(store)), (143, 0));
    loader.signal(Signal::SIGTERM);
    loader.ends(143, &[]);
}

#[test]
fn ctrl_c_ends_command_or_waiting_and_the_calling_script() {
    let store = Store::local();
    let line = format!(
        "{} -v cache get-or-refresh --url {} k -- sh -c 'touch ready; exec sleep 600'; echo went on",
        LEASEHOLD, store.url
    );
    let script = || {
        Session::start(&["bash", "-c", &line], |command| {
            command.current_dir(store.dir.path());
        })
    };
    let mut loads = script();
    store.until("ready");
    let mut waits = script();
    waits.until("connected");
    for session in [&mut waits, &mut loads] {
        session.press("\x03");
        session.end();
        assert!(!session.shown().contains("went on"), "{}", session.shown());
    }
}

/// True if a process has a handler for TERM.
fn catches(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok());
    caught.is_some_and(|caught| caught & (1 << (Signal::SIGTERM as u64 - 1)) != 0)
}

fn a_reader_that_does_not_read_does_not_keep_us(store: &Store) {
    let large = "head -c 1000000 /dev/zero";
    load(store, "", large).is(0, &[]);
    // The first byte shows that it writes; the rest does not fit into the pipe.
    let script = "mkfifo pipe; leasehold cache get --url $0 k > pipe & exec 5< pipe; head -c 1 <&5 > /dev/null
        kill -TERM $!; wait $!; echo $?";
    assert_eq!(shell(store, script).stdout, b"143\n");
}

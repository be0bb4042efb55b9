//! Waiting in the queue: messages, order, and leaving.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]

use std::process::Stdio;

use crate::common::{LIMIT, Store, on_each_store};
use nix::sys::signal::Signal;

on_each_store! {
    says_who_holds_and_the_place_in_line_and_runs_in_turn,
    a_signal_leaves_the_line,
    a_signal_that_arrives_with_the_lock_starts_nothing,
    other_signals_do_not_end_the_waiting,
}

fn says_who_holds_and_the_place_in_line_and_runs_in_turn(store: &Store) {
    let holder = store.hold();
    let (pid, fence) = (holder.pid(), store.number("fence"));
    let held_by = format!("(pid {pid}: sh), fence {fence}");

    let script =
        "echo $LEASEHOLD_FENCE > second; while ! [ -e let-go-second ]; do sleep 0.02; done";
    let noted = store.run(&["--note", "the second"]);
    let second = noted.words(&["x", "sh", "-c", script]).start();
    second.until_it_says("waiting for \"x\", 1st in line: held ");
    second.until_it_says(&held_by);
    let script = "echo $LEASEHOLD_FENCE > third; echo $LEASEHOLD_WAITED_MS > waited";
    let third = store.script("x", script).start();
    third.until_it_says("waiting for \"x\", 2nd in line: held ");
    third.until_it_says(&held_by);
    assert!(!store.file("second").exists());

    store.let_go();
    let fence = store.number("second");
    second.until_it_says(&format!("fence {fence}\n"));
    third.until_it_says("waiting for \"x\", 1st in line: held ");
    let held_by = format!("(pid {}: the second), fence {fence}", second.pid());
    third.until_it_says(&held_by);
    holder.ends(0, &[]);

    store.touch("let-go-second");
    for waited in [second, third] {
        waited.ends(0, &["got \"x\" after "]);
    }
    assert!(store.number("third") > fence && store.number("waited") > 0);
}

fn a_signal_leaves_the_line(store: &Store) {
    let _holder = store.hold();
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
    ] {
        let waiter = store.run("x touch ran").start();
        waiter.until_it_says("1st in line");
        waiter.signal(signal);
        waiter.ends(code, &[]);
        store.run("-n x true").is(75, &["0 waiting"]);
    }
    assert!(!store.file("ran").exists());
}

/// A waiter that is stopped finds both when it goes on: the lock, which was granted meanwhile, and the signal.
fn a_signal_that_arrives_with_the_lock_starts_nothing(store: &Store) {
    let holder = store.hold();
    let waiter = store.run("x touch ran").start();
    waiter.until_it_says("1st in line");
    waiter.stop();
    store.let_go();
    holder.ends(0, &[]);
    waiter.signal(Signal::SIGTERM);
    waiter.signal(Signal::SIGCONT);
    waiter.ends(143, &[]);
    assert!(!store.file("ran").exists());
    store.run("-w 20 x true").is(0, &[]);
}

fn other_signals_do_not_end_the_waiting(store: &Store) {
    let holder = store.hold();
    let waiter = store.run("x true").start();
    waiter.until_it_says("1st in line");
    waiter.signal(Signal::SIGUSR1);
    waiter.signal(Signal::SIGUSR2);
    store.let_go();
    waiter.ends(0, &["got \"x\""]);
    holder.ends(0, &[]);
}

#[test]
fn quiet_says_nothing() {
    let store = &Store::local();
    let holder = store.hold();
    let noisy = store.run("x true").start();
    noisy.until_it_says("1st in line");
    let quiet = store.run("-q x true").start();
    // Only its place in the queue shows that the quiet run waits.
    testkit::eventually(LIMIT, "it waits", || {
        let busy = store.run("-n x true").output();
        busy.stderr.contains("2 waiting")
    });
    store.let_go();
    assert_eq!(quiet.end().stderr, "");
    noisy.ends(0, &[]);
    holder.ends(0, &[]);
}

#[test]
fn a_store_that_stopped_answering_is_not_a_busy_lock() {
    let store = Store::silent_at_times();
    let _holder = store.hold();
    let waits = |verb: &str, words: &str| {
        let waiting = store.verb(verb, words);
        waiting.stdin(Stdio::piped()).start()
    };
    // A client far back in the queue seldom sends requests, so it does not notice by itself that the store is
    // silent.
    let ahead: Vec<_> = (0..4).map(|_| waits("run", "-w 10 x true")).collect();
    for waiting in &ahead {
        waiting.until_it_says("waiting for");
    }
    let skipping = store.run("--skip -w 10 x true").start();
    let (last, holding) = (waits("run", "-w 10 x true"), waits("hold", "-w 10 x"));
    last.until_it_says("in line");
    holding.until_it_writes("waiting");
    store.server().pause();
    for waiting in ahead.into_iter().chain([skipping, last, holding]) {
        waiting.ends(69, &["(exit 69)"]);
    }
    store.server().resume();
}

/// The server comes later than the run, as after a restart of both.
#[test]
fn an_outage_at_the_first_contact_is_part_of_the_wait() {
    let store = Store::redis();
    store.server().kill();
    for (verb, words) in [
        ("run", "x -- true"),
        ("acquire", "--ttl 6s y"),
        ("wait", "z"),
    ] {
        store.verb(verb, words).is(69, &[]);
        let over = store.verb(verb, "-w 300ms").words(words);
        over.is(69, &["refused", "(exit 69)"]);
        let waits = store.verb(verb, "-w 1h").words(words).start();
        waits.until_it_says("waiting for the store: ");
        store.server().restart();
        waits.ends(0, &[]);
        store.server().kill();
    }
    store.run("--try x -- true").is(69, &["(exit 69)"]);
}

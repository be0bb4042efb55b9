//! A lost lease while the command runs: the command is dead before another client can get the lock, and the exit
//! code is 79 whatever its status.

// `setsid`, `env --default-signal` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the point is real time")]

use std::time::{Duration, Instant};

use crate::common::{LIMIT, Running, Store, lives, on_each_store};
use nix::sys::signal::Signal;
use testkit::eventually;

/// Ignores the stop signal.
const STUBBORN: &str =
    "echo $LEASEHOLD_FENCE > fence; trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";

/// Ends when the test lets it go.
const PATIENT: &str = "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; exit 5";

/// Runs `script` under the lock "x" until it has made the file `pid`.
fn start(store: &Store, words: &str, script: &str) -> (Running, u64) {
    let running = store.script(&format!("{words} x"), script).start();
    let pid = store.number("pid");
    (running, pid)
}

/// The first process dies from the stop signal, and the second does not.
#[test]
fn deleted_key_is_noticed_at_next_renewal_and_all_processes_killed() {
    let store = Store::redis();
    let script = "(trap '' TERM; while :; do sleep 0.02; done) & echo $! > pid; wait";
    let (running, behind) = start(&store, "--ttl 6s", script);
    store.server().cli(&["DEL", "x"]);
    // Only the answer to a renewal says that there is no holder. At its deadline the lease would just not be renewed.
    let lost = ["the lease on \"x\" (fence ", "was lost", "no one holds it"];
    let done = running.ends(79, &lost);
    done.is(79, &["the command was stopped (exit 79)", "unprotected"]);
    eventually(LIMIT, "the one behind is dead", || !lives(behind));
}

#[test]
fn a_lock_that_someone_else_has_taken_is_left_alone() {
    let store = Store::redis();
    let (running, _) = start(&store, "--ttl 6s", STUBBORN);
    store.server().cli(&["SET", "x", "somebody"]);
    running.ends(79, &["a foreign", "(exit 79)"]);
    assert_eq!(store.server().cli(&["GET", "x"]).text(), "somebody");
}

#[test]
fn silent_server_ends_command_before_key_can_expire() {
    let store = Store::silent_at_times();
    let (running, pid) = start(&store, "--ttl 19s --grace 6.1s", STUBBORN);
    store.server().pause();
    let says = ["could not be renewed and ends in", "stopping the command"];
    let done = running.ends(79, &says);
    // Asked while the lease lasted; it was killed after the grace, since it does not stop by itself.
    assert!(done.seconds_after("and ends in ") > 0.0, "{done:?}");
    assert!(!lives(pid));
    store.server().resume();
    store.run("-w 20 x true").is(0, &[]);
}

/// A restart after a loss does not wait for a release that will not be confirmed.
#[test]
fn a_loss_ends_the_wrapper_soon_after_its_command() {
    let store = Store::silent_at_times();
    // A busy machine makes single runs slow, but not all. With the limit of other releases each would wait for 3 s.
    let quick = (0..4).any(|_| {
        let (running, pid) = start(&store, "--ttl 6s", "echo $$ > pid; exec sleep 1000");
        store.server().pause();
        eventually(LIMIT, "the command is dead", || !lives(pid));
        let died = Instant::now();
        let done = running.end();
        let after = died.elapsed();
        store.server().resume();
        done.is(79, &["(exit 79)"]);
        assert!(!done.stderr.contains("right host and port"), "{done:?}");
        store.server().cli(&["DEL", "x"]);
        std::fs::remove_file(store.file("pid")).expect("it was made");
        after < Duration::from_secs(2)
    });
    assert!(quick, "each waited for the release");
}

#[test]
fn a_server_that_comes_back_in_time_costs_nothing() {
    let store = Store::silent_at_times();
    let (running, _) = start(&store, "-v --ttl 18s", PATIENT);
    let key = store.server().cli(&["GET", "x"]);
    // The server pauses until the first renewal has failed, but not until the end of the lease.
    store.server().pause();
    running.until_it_says(" WARNING renewal failed \"x\"");
    store.server().resume();
    eventually(LIMIT, "it is renewed", || {
        store.server().cli(&["PTTL", "x"]).int() > 13_000
    });
    assert_eq!(store.server().cli(&["GET", "x"]), key);
    store.let_go();
    let done = running.ends(5, &[]);
    assert!(!done.stderr.contains("stopping"), "{done:?}");
}

#[test]
fn a_command_that_ends_without_the_lease_is_79_too() {
    let store = Store::redis();
    let (running, _) = start(&store, "--ttl 30s", PATIENT);
    // The deletion is long before the next renewal.
    store.server().cli(&["DEL", "x"]);
    store.let_go();
    running.ends(79, &["was lost", "the command ended after that (exit 79)"]);
}

#[test]
fn unconfirmed_release_keeps_exit_code_and_is_reported() {
    let store = Store::silent_at_times();
    let (running, _) = start(&store, "--ttl 30s", PATIENT);
    store.server().pause();
    store.let_go();
    let says = ["may not have been released", "the TTL ends it within 30s"];
    running.ends(5, &says);
}

on_each_store! { a_wrapper_that_was_stopped_for_too_long_kills_its_command }

fn a_wrapper_that_was_stopped_for_too_long_kills_its_command(store: &Store) {
    let (running, pid) = start(store, "--ttl 6s", STUBBORN);
    running.stop();
    // The end of its lease. While it is stopped the wrapper cannot act: fences protect against this.
    let words = format!("x --if-fence {}", store.number("fence"));
    store.verb("break", &words).is(0, &["was broken"]);
    store.is_free();
    running.signal(Signal::SIGCONT);
    running.ends(79, &["was lost", "(exit 79)"]);
    assert!(!lives(pid));
}

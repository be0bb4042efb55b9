//! A lost lease while the command runs: the command is dead before another client can get the lock, and the exit
//! code is 79 whatever its status.

// `setsid`, `env --default-signal`, `date +%N` and /proc are Linux'.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the point is real time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{LIMIT, Running, Store, lives, on_each_store};
use nix::sys::signal::Signal;
use testkit::{FaultProxy, RedisServer, Reply, eventually};

/// Ignores the stop signal, and records the time (milliseconds since 1970) as long as it lives.
const STUBBORN: &str = "trap '' TERM; echo $$ > pid; while :; do date +%s%3N > beat.new; mv beat.new beat; sleep 0.01; done";

fn milliseconds(reply: &Reply) -> u64 {
    let Reply::Int(value) = reply else {
        panic!("{reply:?}")
    };
    u64::try_from(*value).unwrap_or(0)
}

/// Runs `script` under the lock "x" until it has made the file `pid`.
fn start(store: &Store, ttl: &str, script: &str) -> (Running, u64) {
    let running = store.run(&["--ttl", ttl, "x", "sh", "-c", script]).start();
    let pid = store.number("pid");
    (running, pid)
}

/// Waits for a renewal, so that the next one is a third of the TTL away. Returns the expiry of the key, in
/// milliseconds.
fn renewed(store: &Store) -> u64 {
    let expires = || milliseconds(&store.server().cli(&["PEXPIRETIME", "x"]));
    let (before, mut now) = (expires(), 0);
    eventually(LIMIT, "a renewal", || {
        now = expires();
        now > before
    });
    now
}

#[test]
fn deleted_key_is_noticed_at_next_renewal_and_command_killed() {
    let store = Store::redis();
    let (running, pid) = start(&store, "9s", STUBBORN);
    let deleted = Instant::now();
    store.server().cli(&["DEL", "x"]);
    let done = running.end();
    // The wrapper notices the loss within a third of the TTL. The command has a sixth of the TTL to stop.
    let took = deleted.elapsed();
    done.is(
        79,
        &[
            "the lease on \"x\" (fence ",
            "was lost",
            "no one holds it",
            "the command was stopped (exit 79)",
            "unprotected",
        ],
    );
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert!(!lives(pid));
}

#[test]
fn a_lock_that_someone_else_has_taken_is_left_alone() {
    let store = Store::redis();
    let (running, _) = start(&store, "3s", STUBBORN);
    store.server().cli(&["SET", "x", "somebody"]);
    running.end().is(79, &["a foreign", "(exit 79)"]);
    let Reply::Str(value) = store.server().cli(&["GET", "x"]) else {
        panic!("no value")
    };
    assert_eq!(value, b"somebody");
}

#[test]
fn a_command_that_stops_when_asked_gets_the_time_for_it() {
    let store = Store::redis();
    let script =
        "trap 'sleep 0.1; touch cleaned; exit 0' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let (running, _) = start(&store, "9s", script);
    store.server().cli(&["DEL", "x"]);
    running.end().is(79, &["stopping the command", "(exit 79)"]);
    assert!(store.file("cleaned").exists());
}

#[test]
fn silent_server_ends_command_before_key_can_expire() {
    let store = Store::redis();
    let server = store.server();
    let (running, pid) = start(&store, "12s", STUBBORN);
    store.until("beat");
    let expires = renewed(&store);
    server.pause();
    let done = running.end();
    done.is(
        79,
        &[
            "could not be renewed and ends in",
            "stopping the command",
            "(exit 79)",
        ],
    );
    assert!(!lives(pid));
    let last_beat = store.number("beat");
    assert!(
        last_beat < expires,
        "alive at {last_beat}, the key expired at {expires}"
    );
    server.resume();
    store.run(&["-w", "20", "x", "true"]).output().is(0, &[]);
}

/// A restart after a loss does not wait for a release that will not be confirmed.
#[test]
fn a_loss_ends_the_wrapper_soon_after_its_command() {
    let store = Store::redis();
    let script =
        "trap 'date +%s%3N > died; exit 0' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let (running, _) = start(&store, "3s", script);
    store.server().pause();
    let done = running.end();
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    store.server().resume();
    done.is(79, &["(exit 79)"]);
    assert!(!done.stderr.contains("right host and port"), "{done:?}");
    let after = ended.saturating_sub(Duration::from_millis(store.number("died")));
    // Without the shorter limit it would wait for 3 s.
    assert!(after < Duration::from_secs(2), "{after:?}");
}

#[test]
fn a_server_that_comes_back_in_time_costs_nothing() {
    let store = Store::redis();
    let (running, _) = start(
        &store,
        "6s",
        "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; exit 4",
    );
    let key = store.server().cli(&["GET", "x"]);
    // The server pauses from one renewal until after the time of the next, but not until the end of the lease.
    renewed(&store);
    store.server().pause();
    std::thread::sleep(Duration::from_millis(2_500));
    store.server().resume();
    eventually(LIMIT, "it is renewed", || {
        milliseconds(&store.server().cli(&["PTTL", "x"])) > 5_000
    });
    assert_eq!(
        format!("{:?}", store.server().cli(&["GET", "x"])),
        format!("{key:?}")
    );
    store.let_go();
    let done = running.end();
    assert_eq!((done.code(), done.stderr.as_str()), (4, ""));
}

#[test]
fn a_command_that_ends_without_the_lease_is_79_too() {
    let store = Store::redis();
    let (running, _) = start(
        &store,
        "30s",
        "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; exit 0",
    );
    // The deletion is long before the next renewal.
    store.server().cli(&["DEL", "x"]);
    store.let_go();
    running
        .end()
        .is(79, &["was lost", "the command ended after that (exit 79)"]);
}

/// The server executes the first release and its reply is lost. The second release finds another holder.
#[test]
fn a_loss_is_told_also_if_the_first_release_was_not_answered() {
    let mut store = Store::redis();
    store.redis = Some(RedisServer::builder().virtual_clock().start());
    let direct = store.server().url();
    let proxy = FaultProxy::start(store.server().port());
    store.url = proxy.url();
    let script = "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done";
    let (running, _) = start(&store, "1h", script);
    store.server().cli(&["DEL", "x"]);
    store.url = direct;
    let other = store.verb("acquire", &["--ttl", "1h", "x"]).output();
    assert_eq!(other.code(), 0, "{other:?}");
    // By the server's clock, the other client has held the lock for longer than any release takes here.
    store.server().clock().advance(Duration::from_secs(100));

    proxy.swallow_replies(true);
    store.let_go();
    eventually(LIMIT, "the answer is lost", || proxy.swallowed() > 0);
    proxy.cut_and_answer();
    running.end().is(79, &["was lost", "(exit 79)"]);
    let Reply::Str(_) = store.server().cli(&["GET", "x"]) else {
        panic!("the lock of the other is gone")
    };
}

#[test]
fn unconfirmed_release_keeps_exit_code_and_is_reported() {
    let store = Store::redis();
    let (running, _) = start(
        &store,
        "30s",
        "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; exit 5",
    );
    store.server().pause();
    store.let_go();
    running.end().is(
        5,
        &["may not have been released", "the TTL ends it within 30s"],
    );
}

#[test]
fn all_processes_of_the_command_are_stopped() {
    let store = Store::redis();
    // The first process dies from the stop signal, and the second does not.
    let script = "(trap '' TERM; while :; do sleep 0.02; done) & echo $! > pid; wait";
    let (running, behind) = start(&store, "3s", script);
    store.server().cli(&["DEL", "x"]);
    running.end().is(79, &["(exit 79)"]);
    eventually(LIMIT, "the one behind is dead", || !lives(behind));
}

on_each_store! { a_wrapper_that_was_stopped_for_too_long_kills_its_command }

fn a_wrapper_that_was_stopped_for_too_long_kills_its_command(store: &Store) {
    let (running, pid) = start(store, "1s", STUBBORN);
    running.signal(Signal::SIGSTOP);
    // While it is stopped the wrapper cannot act: fences protect against this.
    store.run(&["-w", "20", "x", "true"]).output().is(0, &[]);
    running.signal(Signal::SIGCONT);
    running.end().is(79, &["was lost", "(exit 79)"]);
    assert!(!lives(pid));
}

#[test]
fn a_server_that_is_full_renews_and_releases() {
    let store = Store::redis();
    let (running, _) = start(
        &store,
        "5s",
        "echo $$ > pid; while ! [ -e let-go ]; do sleep 0.02; done; exit 4",
    );
    store.server().cli(&["CONFIG", "SET", "maxmemory", "1"]);
    // Longer than a lease.
    for _ in 0..4 {
        renewed(&store);
    }
    store.let_go();
    let done = running.end();
    assert_eq!((done.code(), done.stderr.as_str()), (4, ""));
    assert_eq!(milliseconds(&store.server().cli(&["EXISTS", "x"])), 0);
}

//! Locks that are strings: `SETNX` with `EXPIRE`, and `SET NX EX` with `DEL`.

use std::sync::OnceLock;
use std::time::Duration;

use testkit::eventually;

use super::rollout::{Rollout, Running, at_once, exclude_each_other, new, old};
use crate::scene::{millis, now};

const LONG: Duration = Duration::from_secs(30);

/// The tolerance for delays of this machine.
const SLACK: Duration = Duration::from_secs(10);

/// `SETNX` and `EXPIRE` in one transaction, with a TTL of `$1` seconds.
const SETNX_EXPIRE: &str = r#"
take() { [ "$(printf 'MULTI\nSETNX lock 1\nEXPIRE lock %s\nEXEC\n' "$TTL" | redis-cli -p "$PORT" | sed -n 4p)" = 1 ]; }
free() { cli DEL lock >/dev/null; }
"#;

/// The two commands one after the other; a crash may occur between them.
const SETNX_THEN_EXPIRE: &str = r#"
take() { [ "$(cli SETNX lock 1)" = 1 ] && : >"$DIR/between" && until ! [ -e "$DIR/slow" ]; do sleep 0.01; done && cli EXPIRE lock 60 >/dev/null; }
free() { cli DEL lock >/dev/null; }
"#;

const SET_NX_EX: &str = r#"
take() { [ "$(cli SET lock 1 NX EX "$TTL")" = OK ]; }
free() { cli DEL lock >/dev/null; }
"#;

/// The changed program that the page recommends for both.
const CHANGED: &str = r#"
take() { token=$$.$RANDOM.$RANDOM; [ "$(cli SET lock "$token" NX PX "${TTL}000")" = OK ]; }
free() { cli EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end" 1 lock "$token" >/dev/null; }
"#;

/// `lock` and `unlock` of `ShedLock`'s Redis provider, as by default. It needs a Java runtime, so a shell sends its commands.
const SHEDLOCK: &str = r#"
key=job-lock:default:lock
take() { value="ADDED:2026-11-27T10:00:00Z@$$:$RANDOM"; [ "$(cli SET $key "$value" NX PX "${TTL}000")" = OK ]; }
free() { cli DEL $key >/dev/null; }
"#;

/// The same with `safeUpdate`.
const SHEDLOCK_SAFE: &str = r#"
key=job-lock:default:lock
take() { value="ADDED:2026-11-27T10:00:00Z@$$:$RANDOM"; [ "$(cli SET $key "$value" NX PX "${TTL}000")" = OK ]; }
free() { cli EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end" 1 $key "$value" >/dev/null; }
"#;

/// Leasehold on the keys of `ShedLock`.
const JOB_LOCK: &str = "--key-template job-lock:default:{}";

/// A program with a TTL of this many seconds.
fn with_ttl(seconds: u32, program: &str) -> String {
    format!("TTL={seconds}\n{program}")
}

pub(super) fn setnx_and_expire() -> String {
    let (before, after) = (with_ttl(60, SETNX_EXPIRE), with_ttl(60, CHANGED));
    at_once(&[
        &a_loser_with_a_shorter_ttl_makes_two_hold,
        &a_loser_with_a_longer_ttl_outlasts_a_leasehold_crash,
        // Step 1: the old programs change one by one.
        &|| exclude_each_other(&old(&before), &old(&after)),
        // Step 2.
        &|| exclude_each_other(&old(&after), &new("--ttl 30s")),
        &a_loser_that_is_changed_touches_nothing,
        // Where step 1 is not possible: a TTL not shorter than Leasehold's.
        &|| exclude_each_other(&old(&before), &new("--ttl 30s")),
        &what_a_crash_between_two_commands_leaves_is_waited_for,
    ]);
    "a shorter TTL of a loser made two hold; after each step none did".into()
}

fn a_loser_that_is_changed_touches_nothing() {
    let rollout = Rollout::start();
    let leasehold = rollout.leasehold_holds("--ttl 30s");
    assert_eq!(rollout.run(&(with_ttl(1, CHANGED) + "take")), 1);
    assert!(rollout.left() > 20_000, "{} ms", rollout.left());
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
}

fn a_loser_with_a_shorter_ttl_makes_two_hold() {
    let rollout = Rollout::start();
    let leasehold = rollout.leasehold_holds("--ttl 6s");
    // It pauses for longer than its TTL, so that Leasehold's key expires, unless a renewal comes just then.
    let comes_again = "until take; do sleep 1.3; done; \"$DIR/work\" old";
    assert_eq!(rollout.run(&(with_ttl(1, SETNX_EXPIRE) + comes_again)), 0);
    assert!(rollout.overlapped(), "{:?}", rollout.turns());
    assert_eq!(leasehold.ends(), 79, "told at its next renewal");
}

fn a_loser_with_a_longer_ttl_outlasts_a_leasehold_crash() {
    let rollout = Rollout::start();
    let leasehold = rollout.leasehold_holds("--ttl 30s");
    assert_eq!(rollout.run(&(with_ttl(60, SETNX_EXPIRE) + "take")), 1);
    leasehold.kill();
    assert!(rollout.left() > 40_000, "{} ms", rollout.left());
}

fn what_a_crash_between_two_commands_leaves_is_waited_for() {
    let rollout = Rollout::start();
    let leasehold = rollout.leasehold_holds("--ttl 30s");
    assert_eq!(rollout.run(&(SETNX_THEN_EXPIRE.to_owned() + "take")), 1);
    assert!(rollout.left() <= 30_000, "a loser touches nothing");
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);

    rollout.touch("slow");
    let crashes = rollout.begin(&(SETNX_THEN_EXPIRE.to_owned() + "take"));
    eventually(LONG, "it is between the two", || rollout.has("between"));
    crashes.kill();
    let inspect = "\"$LEASEHOLD\" inspect --url redis://127.0.0.1:$PORT/ --config $DIR/none.toml lock | grep -q 'NEVER ENDS'";
    assert_eq!(rollout.run(inspect), 0);
    assert_eq!(rollout.run("new --wait 1s lock -- true"), 124);
    assert_eq!(rollout.left(), -1, "left alone");
    let waits = rollout.begin("new lock -- \"$DIR/work\" new");
    assert_eq!(rollout.run("cli DEL lock >/dev/null"), 0);
    assert_eq!(waits.ends(), 0);
}

pub(super) fn set_nx_ex_and_del() -> String {
    let (before, after) = (with_ttl(60, SET_NX_EX), with_ttl(60, CHANGED));
    let told = [30_000, 6000].map(|ttl| (Duration::from_millis(ttl), OnceLock::new()));
    let is_late = |at: usize| {
        let (ttl, told) = &told[at];
        told.set(a_late_del_makes_two_hold(SET_NX_EX, "", *ttl))
    };
    at_once(&[
        // First without a late client, then with one.
        &|| exclude_each_other(&old(&before), &new("")),
        &|| is_late(0).expect("once"),
        // Step 1: the old programs change one by one. A changed late program deletes nothing.
        &|| exclude_each_other(&old(&before), &old(&after)),
        &|| a_late_one_that_is_changed_deletes_nothing(CHANGED, ""),
        // Step 2.
        &|| exclude_each_other(&old(&after), &new("")),
        // Where step 1 is not possible: a short TTL makes the loss visible soon.
        &|| is_late(1).expect("once"),
    ]);
    let [long, short] = told.map(|(_, told)| millis(told.into_inner().unwrap_or_default()));
    format!(
        "a late DEL made two hold; Leasehold was stopped {long} later with a TTL of 30 s, {short} with one of 6 s"
    )
}

pub(super) fn shedlock() -> String {
    let (before, after) = (with_ttl(60, SHEDLOCK), with_ttl(60, SHEDLOCK_SAFE));
    at_once(&[
        &|| exclude_each_other(&old(&before), &new(JOB_LOCK)),
        &|| {
            a_late_del_makes_two_hold(SHEDLOCK, JOB_LOCK, Duration::from_secs(6));
        },
        // Step 1: `safeUpdate` for one program after the other.
        &|| exclude_each_other(&old(&before), &old(&after)),
        &|| a_late_one_that_is_changed_deletes_nothing(SHEDLOCK_SAFE, JOB_LOCK),
        // Step 2: its name of the lock.
        &|| it_is_recognized_by_its_name_of_the_lock(&before),
        // Step 3.
        &|| exclude_each_other(&old(&after), &new(JOB_LOCK)),
    ]);
    "by its commands: excluded both ways; its late DEL made two hold, with safeUpdate it did not"
        .into()
}

fn it_is_recognized_by_its_name_of_the_lock(program: &str) {
    let rollout = Rollout::start();
    let inspect =
        "\"$LEASEHOLD\" inspect --url redis://127.0.0.1:$PORT/ --config \"$DIR/none.toml\"";
    let sees = format!("take; {inspect} {JOB_LOCK} lock | grep -q ShedLock");
    assert_eq!(rollout.run(&format!("{program}{sees}")), 0);
    let tries = format!("new --try {JOB_LOCK} lock -- true");
    assert_eq!(rollout.run(&tries), 75);
    assert_eq!(rollout.run("new --try lock -- true"), 0, "two locks");
}

fn a_late_one_that_is_changed_deletes_nothing(program: &str, options: &str) {
    let rollout = Rollout::start();
    let late = one_that_will_be_late(&rollout, program, "");
    let leasehold = rollout.leasehold_holds(options);
    rollout.touch("late");
    assert_eq!(late.ends(), 0);
    let tries = format!("new --try {options} lock -- true");
    assert_eq!(rollout.run(&tries), 75);
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
}

/// Takes the lock, and releases it when the file `late` exists.
const LATE: &str = r#"
until take; do sleep 0.01; done
: >"$DIR/has"
until [ -e "$DIR/late" ]; do sleep 0.01; done
free
"#;

/// An old program with a TTL of one second that releases late, and then runs `next`.
fn one_that_will_be_late(rollout: &Rollout, program: &str, next: &str) -> Running {
    let late = rollout.begin(&(with_ttl(1, program) + LATE + next));
    eventually(LONG, "it has the lock", || rollout.has("has"));
    late
}

/// The time from the `DEL` to the stop of Leasehold's command.
fn a_late_del_makes_two_hold(program: &str, options: &str, ttl: Duration) -> Duration {
    let rollout = Rollout::start();
    let next = "take && \"$DIR/work\" old";
    let late = one_that_will_be_late(&rollout, program, next);
    let leasehold = rollout.leasehold_holds(&format!("{options} --ttl {}ms", ttl.as_millis()));
    let began = now();
    rollout.touch("late");
    assert_eq!(late.ends(), 0, "the next has the lock as well");
    assert!(rollout.overlapped(), "{:?}", rollout.turns());
    assert_eq!(leasehold.ends(), 79);
    let told = now().since(began);
    assert!(told <= ttl / 3 + SLACK, "{told:?}");
    told
}

//! Redisson: a hash. Its programs are played by shell scripts that send the commands of its scripts, since it needs a Java runtime.

use std::time::Duration;

use testkit::eventually;

use super::rollout::{Rollout, at_once, exclude_each_other, new, old};

const LONG: Duration = Duration::from_secs(30);

/// `tryLock` and `unlock` of an `RLock`: a field for the thread, a message to those who wait. An error is an exception, which the
/// function `failed` gets.
const RLOCK: &str = r#"
thread=$(cat /proc/sys/kernel/random/uuid):1
take() {
  local said
  said=$(cli EVAL "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
    return redis.call('pttl', KEYS[1])" 1 "${LOCK:-lock}" "${TTL:-30000}" "$thread")
  case $said in '') ;; *WRONGTYPE*) failed ;; *) false ;; esac
}
free() {
  cli EVAL "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
    if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then
      redis.call('del', KEYS[1]) redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0') end
    return 1" 1 "${LOCK:-lock}" "$thread" >/dev/null
}
"#;

/// A program that expects no exception ends by it.
const UNCAUGHT: &str = "failed() { exit 70; }\n";

/// Step 1: `WRONGTYPE` is busy.
const CAUGHT: &str = "failed() { false; }\n";

pub(super) fn redisson() -> String {
    let [uncaught, caught] = [UNCAUGHT, CAUGHT].map(|failed| failed.to_owned() + RLOCK);
    at_once(&[
        &|| it_is_excluded_and_fails(&uncaught, &caught),
        &a_waiter_that_its_own_kind_wakes_fails_too,
        // Step 1: they change one by one.
        &|| exclude_each_other(&old(&uncaught), &old(&caught)),
        // Step 2: new ones start in any order.
        &|| exclude_each_other(&old(&caught), &new("")),
        // Where step 1 is not possible.
        &|| ours_waits_for_what_a_stopped_one_left(&uncaught),
        &|| two_names_are_two_locks(&uncaught),
        &others_of_the_same_name_exclude_ours,
    ]);
    "by its commands: excluded both ways, and fails with WRONGTYPE while ours holds".into()
}

fn it_is_excluded_and_fails(uncaught: &str, caught: &str) {
    let rollout = Rollout::start();
    let ours = rollout.ours_holds("");
    let token = rollout.server.cli(&["GET", "lock"]);
    assert_eq!(rollout.run(&format!("{uncaught}take")), 70);
    assert_eq!(rollout.run(&format!("{caught}take")), 1);
    assert_eq!(rollout.server.cli(&["GET", "lock"]), token, "left alone");
    rollout.touch("done");
    assert_eq!(ours.ends(), 0);
}

fn ours_waits_for_what_a_stopped_one_left(program: &str) {
    let rollout = Rollout::start();
    let holds = format!("TTL=3000\n{program}take && : >\"$DIR/has\"; sleep 60");
    let stopped = rollout.begin(&holds);
    eventually(LONG, "it has the lock", || rollout.has("has"));
    stopped.kill();
    assert_eq!(rollout.run("new --try lock -- true"), 75);
    assert_eq!(rollout.run("new --wait 20s lock -- true"), 0);
}

fn two_names_are_two_locks(program: &str) {
    let rollout = Rollout::start();
    let ours = rollout.ours_holds("");
    let elsewhere = format!("LOCK=other\n{program}take && \"$DIR/work\" old");
    assert_eq!(rollout.run(&elsewhere), 0);
    assert!(rollout.overlapped());
    rollout.touch("done");
    assert_eq!(ours.ends(), 0);
}

/// Redisson's waiters sleep until a message of its own kind. Ours may be first then.
fn a_waiter_that_its_own_kind_wakes_fails_too() {
    let rollout = Rollout::start();
    let program = CAUGHT.to_owned() + RLOCK;
    let holds = "take && : >\"$DIR/has\"; until [ -e \"$DIR/go\" ]; do sleep 0.01; done; free";
    let holder = rollout.begin(&(program.clone() + holds));
    eventually(LONG, "it has the lock", || rollout.has("has"));
    let mut waiter = rollout.server.connection();
    waiter.command(&["SUBSCRIBE", "redisson_lock__channel:{lock}"]);
    let ours = rollout.begin("new lock -- \"$DIR/work\" new long");
    eventually(LONG, "ours is in line", || {
        rollout.server.cli(&["EXISTS", "{lock}:lh-queue"]).int() == 1
    });
    rollout.touch("go");
    assert_eq!(waiter.receive().expect("a message").array()[2].text(), "0");
    assert_eq!(holder.ends(), 0);
    eventually(LONG, "ours works", || !rollout.turns().is_empty());
    assert_eq!(rollout.run(&(UNCAUGHT.to_owned() + RLOCK + "take")), 70);
    // And ours wakes nobody of its kind.
    rollout.touch("done");
    assert_eq!(ours.ends(), 0);
    waiter.set_timeout(Duration::from_millis(200));
    assert!(waiter.receive().is_err());
}

/// A read lock, which is a hash with a mode; a fair lock, which is a hash and a line beside it; a semaphore, which is a number. Each by
/// the first command of its script that touches the key.
fn others_of_the_same_name_exclude_ours() {
    let rollout = Rollout::start();
    for held in [
        "HSET lock mode read thread:1 1",
        "HSET lock thread:1 1",
        "SET lock 3",
    ] {
        assert_eq!(
            rollout.run(&format!("cli {held} >/dev/null; new --try lock -- true")),
            75
        );
        assert_eq!(rollout.run("cli DEL lock >/dev/null"), 0);
    }
    let ours = rollout.ours_holds("");
    for asked in [
        vec!["HGET", "lock", "mode"],
        vec!["HEXISTS", "lock", "thread:1"],
        vec!["DECRBY", "lock", "1"],
        vec!["INCRBY", "lock", "1"],
    ] {
        assert!(rollout.server.cli(&asked).error().is_some(), "{asked:?}");
    }
    rollout.touch("done");
    assert_eq!(ours.ends(), 0);
}

//! Redisson, whose lock is a hash. Shell scripts send the commands of its scripts, since it needs a Java
//! runtime.

use std::time::Duration;

use testkit::eventually;

use super::rollout::{Rollout, at_once, exclude_each_other, new, old};

const LONG: Duration = Duration::from_secs(30);

/// `tryLock` and `unlock` of an `RLock`: a field for the thread, and a message to its waiters. An error calls
/// the function `failed`, like an exception.
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

/// A program without exception handling ends.
const UNCAUGHT: &str = "failed() { exit 70; }\n";

/// Step 1: `WRONGTYPE` is busy.
const CAUGHT: &str = "failed() { false; }\n";

pub(super) fn redisson() -> String {
    let [uncaught, caught] = [UNCAUGHT, CAUGHT].map(|failed| failed.to_owned() + RLOCK);
    at_once(&[
        &|| it_is_excluded_and_fails(&uncaught, &caught),
        &a_waiter_that_its_own_kind_wakes_fails_too,
        // Step 1: old programs change one by one.
        &|| exclude_each_other(&old(&uncaught), &old(&caught)),
        // Step 2: new programs start in any order.
        &|| exclude_each_other(&old(&caught), &new("")),
        // Where step 1 is not possible.
        &|| leasehold_waits_for_what_a_stopped_one_left(&uncaught),
        &|| two_names_are_two_locks(&uncaught),
        &others_of_the_same_name_exclude_leasehold,
    ]);
    "by its commands: excluded both ways, and fails with WRONGTYPE while Leasehold holds".into()
}

fn it_is_excluded_and_fails(uncaught: &str, caught: &str) {
    let rollout = Rollout::start();
    let leasehold = rollout.leasehold_holds("");
    let token = rollout.server.cli(&["GET", "lock"]);
    assert_eq!(rollout.run(&format!("{uncaught}take")), 70);
    assert_eq!(rollout.run(&format!("{caught}take")), 1);
    assert_eq!(rollout.server.cli(&["GET", "lock"]), token, "left alone");
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
}

fn leasehold_waits_for_what_a_stopped_one_left(program: &str) {
    let rollout = Rollout::start();
    let holds = format!("TTL=30000\n{program}take && : >\"$DIR/has\"; sleep 60");
    let stopped = rollout.begin(&holds);
    eventually(LONG, "it has the lock", || rollout.has("has"));
    stopped.kill();
    assert_eq!(rollout.run("new --try lock -- true"), 75);
    assert!(rollout.left() > 0, "it has an end");
    rollout.server.cli(&["PEXPIRE", "lock", "1"]);
    assert_eq!(rollout.run("new --wait 20s lock -- true"), 0);
}

fn two_names_are_two_locks(program: &str) {
    let rollout = Rollout::start();
    let leasehold = rollout.leasehold_holds("");
    let elsewhere = format!("LOCK=other\n{program}take && \"$DIR/work\" old");
    assert_eq!(rollout.run(&elsewhere), 0);
    assert!(rollout.overlapped());
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
}

/// Redisson's waiters sleep until a message from Redisson. Leasehold may then be first.
fn a_waiter_that_its_own_kind_wakes_fails_too() {
    let rollout = Rollout::start();
    let program = CAUGHT.to_owned() + RLOCK;
    let holds = "take && : >\"$DIR/has\"; until [ -e \"$DIR/go\" ]; do sleep 0.01; done; free";
    let holder = rollout.begin(&(program.clone() + holds));
    eventually(LONG, "it has the lock", || rollout.has("has"));
    let mut waiter = rollout.server.connection();
    waiter.command(&["SUBSCRIBE", "redisson_lock__channel:{lock}"]);
    let leasehold = rollout.begin("new lock -- \"$DIR/work\" new long");
    eventually(LONG, "Leasehold is in line", || {
        rollout.server.cli(&["EXISTS", "{lock}:lh-queue"]).int() == 1
    });
    rollout.touch("go");
    assert_eq!(waiter.receive().expect("a message").array()[2].text(), "0");
    assert_eq!(holder.ends(), 0);
    eventually(LONG, "Leasehold works", || !rollout.turns().is_empty());
    assert_eq!(rollout.run(&(UNCAUGHT.to_owned() + RLOCK + "take")), 70);
    // Leasehold does not wake Redisson's waiters.
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
    waiter.set_timeout(Duration::from_millis(200));
    assert!(waiter.receive().is_err());
}

/// A read lock is a hash with a mode, a fair lock a hash with a queue, a semaphore a number. Each is played by
/// the first command of its script that uses the key.
fn others_of_the_same_name_exclude_leasehold() {
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
    let leasehold = rollout.leasehold_holds("");
    for asked in [
        vec!["HGET", "lock", "mode"],
        vec!["HEXISTS", "lock", "thread:1"],
        vec!["DECRBY", "lock", "1"],
        vec!["INCRBY", "lock", "1"],
    ] {
        assert!(rollout.server.cli(&asked).error().is_some(), "{asked:?}");
    }
    rollout.touch("done");
    assert_eq!(leasehold.ends(), 0);
}

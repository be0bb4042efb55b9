//! `flock` on two hosts, played with two lock files.

use std::time::Duration;

use testkit::eventually;

use super::rollout::{Rollout, Running};

const LONG: Duration = Duration::from_secs(30);

/// The cron lines of the host with the lock file `$1`: before, during and after the roll-out.
const LINES: &str = r#"
old_line() { flock -n "$DIR/$1.lock" "${@:2}"; }
both_line() { new --try lock -- flock -n "$DIR/$1.lock" "${@:2}"; }
new_line() { new --try lock -- "${@:2}"; }
"#;

/// The status of `line` while `busy` works, and whether their work overlapped.
fn beside(busy: &str, line: &str) -> (i32, bool) {
    let rollout = Rollout::start();
    let works = holds(&rollout, busy);
    let status = rollout.run(&format!("{LINES}{line} \"$DIR/work\" late"));
    rollout.touch("done");
    assert_eq!(works.ends(), 0);
    (status, rollout.overlapped())
}

fn holds(rollout: &Rollout, line: &str) -> Running {
    let works = rollout.begin(&format!("{LINES}{line} \"$DIR/work\" first long"));
    eventually(LONG, "it works", || !rollout.turns().is_empty());
    works
}

pub(super) fn flock_and_cron() -> String {
    const RUNS: (i32, bool) = (0, true);
    // Before: each host excludes only itself, with status 1.
    assert_eq!(beside("old_line a", "old_line a"), (1, false));
    assert_eq!(beside("old_line a", "old_line b"), RUNS);

    // One host after the other gets the new line: flock excludes the old and the new line on each host, in both
    // directions.
    assert_eq!(beside("old_line a", "both_line a"), (1, false));
    assert_eq!(beside("both_line a", "old_line a"), (1, false));
    // Between hosts with the new line, Leasehold excludes. A host with the old line is not excluded, as before.
    assert_eq!(beside("both_line a", "both_line b"), (75, false));
    assert_eq!(beside("both_line a", "old_line b"), RUNS);
    assert_eq!(beside("old_line b", "both_line a"), RUNS);

    // When all hosts have the new line, flock is removed on one host after the other.
    for (one, other) in [("both_line a", "new_line a"), ("new_line a", "both_line b")] {
        assert_eq!(beside(one, other), (75, false));
        assert_eq!(beside(other, one), (75, false));
    }
    assert_eq!(beside("new_line a", "new_line b"), (75, false));
    // Not before.
    assert_eq!(beside("old_line a", "new_line a"), RUNS);

    // The exit codes of both can be chosen.
    let rollout = Rollout::start();
    let works = holds(&rollout, "both_line a");
    assert_eq!(rollout.run("flock -n -E 9 \"$DIR/a.lock\" true"), 9);
    assert_eq!(rollout.run("new --try --skip lock -- true"), 0);
    rollout.touch("done");
    assert_eq!(works.ends(), 0);
    a_single_host_needs_no_server();
    "flock inside of leasehold run excluded the old line on each host; without it, it did not"
        .into()
}

fn a_single_host_needs_no_server() {
    let rollout = Rollout::start();
    let local = "\"$LEASEHOLD\" run -q --config \"$DIR/none.toml\" --url \"local:$DIR/locks.db\" --try lock --";
    let works = rollout.begin(&format!("{local} \"$DIR/work\" new long"));
    eventually(LONG, "it works", || !rollout.turns().is_empty());
    assert_eq!(rollout.run(&format!("{local} true")), 75);
    rollout.touch("done");
    assert_eq!(works.ends(), 0);
    assert_eq!(rollout.run(&format!("{local} true")), 0);
}

//! A source that fails.

use std::time::Duration;

use leasehold_core::cache::{CommitOutcome, Reply};

use crate::play::{FRESH_MS, LEASE_MS, Play, asks, ids};

#[test]
fn a_failed_load_leaves_the_source_alone_for_a_while() {
    let mut play = Play::new();
    play.load(1);
    play.busy(asks(2));
    assert_eq!(play.abandon(1, Some(5_000)), ids(&[2]));
    assert_eq!(play.abandon(1, Some(5_000)), ids(&[]), "K6");
    play.pass(4_000);
    let Reply::BackOff { left, error, stale } = play.begin(asks(2)) else {
        panic!()
    };
    assert_eq!(
        (left, &*error, stale),
        (Duration::from_millis(1_001), "no database", None)
    );
    play.pass(1_000);
    assert!(
        matches!(play.begin(asks(1)), Reply::BackOff { .. }),
        "at its last millisecond"
    );
    play.pass(1);
    let Reply::Load {
        failures, version, ..
    } = play.begin(asks(3))
    else {
        panic!()
    };
    assert_eq!(failures, 1);
    play.abandon(3, Some(5_000));
    play.pass(5_001);
    let Reply::Load { failures, .. } = play.begin(asks(4)) else {
        panic!()
    };
    assert_eq!(failures, 2);
    // A load that a client gives up does not count as a failure.
    play.abandon(4, None);
    let Reply::Load { failures, .. } = play.begin(asks(5)) else {
        panic!()
    };
    assert_eq!(failures, 2);
    play.abandon(5, Some(5_000));
    // The slow load has a value after all: the source works, and the waiters are woken.
    assert_eq!(play.busy_or_back_off(asks(6)), "back-off");
    assert_eq!(play.commit(3, version), (play.fresh(), ids(&[6])));
    play.invalidate(false);
    assert!(matches!(
        play.begin(asks(7)),
        Reply::Load { failures: 0, .. }
    ));
}

#[test]
fn an_invalidation_does_not_end_a_back_off() {
    let mut play = Play::new();
    play.load(1);
    play.abandon(1, Some(5_000));
    assert_eq!(play.busy_or_back_off(asks(2)), "back-off");
    assert_eq!(play.invalidate(true), ids(&[2]));
    assert_eq!(play.busy_or_back_off(asks(2)), "back-off");
}

#[test]
fn a_stranger_ends_no_load() {
    let mut play = Play::new();
    play.load(1);
    play.pass(LEASE_MS + 1);
    play.load(2);
    let before = play.state.clone();
    play.abandon(1, Some(5_000));
    assert_eq!(play.state, before, "whoever took over knows better");
    assert_eq!(play.renew(2), Reply::Renewed);
}

#[test]
fn a_repeated_commit_tells_nothing_new_of_the_source() {
    let mut play = Play::new();
    let first = play.load(1);
    play.commit(1, first);
    play.pass(FRESH_MS);
    play.load(2);
    play.abandon(2, Some(5_000));
    assert_eq!(play.busy_or_back_off(asks(3)), "back-off");
    // The first commit is repeated late: its load had ended before the other one failed.
    let before = play.state.clone();
    let (kept, wakes) = play.commit(1, first);
    assert!(
        matches!(kept, CommitOutcome::Fresh(_)) && wakes.is_empty(),
        "K6"
    );
    assert_eq!(play.state, before);
    assert_eq!(play.busy_or_back_off(asks(3)), "back-off");
}

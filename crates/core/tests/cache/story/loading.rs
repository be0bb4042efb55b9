//! Loaders, waiters, and late values.

use leasehold_core::cache::{Begin, CommitOutcome, EntryState, Reply, Standing, Step};

use crate::play::{FRESH_MS, LEASE_MS, Play, STALE_MS, asks, ids, ttl};

#[test]
fn one_loads_the_others_wait_and_are_woken_by_its_value() {
    let mut play = Play::new();
    let version = play.load(1);
    assert_eq!(play.busy(asks(2)), (500, None));
    let deaf = Begin {
        listener: None,
        ..asks(3)
    };
    assert_eq!(play.busy(deaf), (25, None));
    play.pass(20);
    assert_eq!(play.commit(1, version), (play.fresh(), ids(&[2])));
    let Reply::Fresh(value) = play.begin(asks(2)) else {
        panic!()
    };
    assert_eq!(&*value.body, format!("1@{}", version.get()).as_bytes());
    // A hit writes nothing.
    let before = play.state.clone();
    play.begin(asks(4));
    assert_eq!(play.state, before);
}

#[test]
fn expired_value_is_stale_during_refresh_and_then_gone() {
    let mut play = Play::new();
    let first = play.load(1);
    play.commit(1, first);
    play.pass(FRESH_MS - 1);
    assert_eq!(play.stands(), Some((first, Standing::Fresh)));
    assert!(matches!(play.begin(asks(2)), Reply::Fresh(_)));
    // A soft expiry is the first millisecond that is stale.
    play.pass(1);
    assert_eq!(play.stands(), Some((first, Standing::Stale)));
    let Reply::Load { version, stale, .. } = play.begin(asks(2)) else {
        panic!()
    };
    assert!(version > first, "K2");
    assert_eq!(stale.unwrap().header.version, first);
    assert_eq!(play.busy(asks(3)).1.unwrap().header.version, first);
    // The reply repeats no value that the caller has seen.
    let seen = Begin {
        seen: first,
        ..asks(3)
    };
    assert_eq!(play.busy(seen).1, None);
    // A hard expiry is the last millisecond at which it is there.
    play.abandon(2, None);
    play.pass(STALE_MS);
    assert!(matches!(
        play.begin(Begin {
            seen: first,
            ..asks(2)
        }),
        Reply::Load { stale: None, .. }
    ));
    assert_eq!(play.stands(), Some((first, Standing::Stale)));
    play.pass(1);
    assert_eq!(play.stands(), None);
}

#[test]
fn a_dead_loader_is_taken_over_when_its_lease_ends() {
    let mut play = Play::new();
    let first = play.load(1);
    play.pass(LEASE_MS);
    // At its last millisecond a lease counts.
    assert_eq!(play.busy(asks(2)), (1, None));
    play.pass(1);
    let second = play.load(2);
    assert!(second > first, "K2");
    assert_eq!(play.renew(1), Reply::NotLoading);
    assert_eq!(play.busy(asks(3)).0, 500);
}

#[test]
fn renewed_lease_goes_on_and_ended_lease_is_not_retaken() {
    let mut play = Play::new();
    play.load(1);
    for _ in 0..5 {
        play.pass(LEASE_MS);
        assert_eq!(play.renew(1), Reply::Renewed);
    }
    play.pass(LEASE_MS + 1);
    assert_eq!(play.renew(1), Reply::NotLoading);
    assert_eq!(play.renew(1), Reply::NotLoading, "K6");
    assert_eq!(
        EntryState::default()
            .apply(
                play.now,
                &Step::Renew {
                    token: asks(1).token,
                    lease: ttl(10)
                }
            )
            .reply,
        Reply::NotLoading
    );
}

#[test]
fn a_late_value_fills_the_cache_if_nothing_newer_is_there() {
    let mut play = Play::new();
    let slow = play.load(1);
    play.pass(LEASE_MS + 1);
    let second = play.load(2);
    play.busy(asks(3));
    assert_eq!(play.commit(1, slow), (play.fresh(), ids(&[3])));
    // The second one still loads. No other client does, even one that wants a newer value.
    let newer = Begin {
        over: true,
        seen: slow,
        ..asks(4)
    };
    assert_eq!(play.busy(newer).1, None);
    assert_eq!(play.renew(2), Reply::Renewed);
    assert_eq!(play.commit(2, second), (play.fresh(), ids(&[4])));
    assert_eq!(play.stands(), Some((second, Standing::Fresh)));
}

#[test]
fn a_late_value_never_replaces_a_newer_one() {
    let mut play = Play::new();
    let slow = play.load(1);
    play.pass(LEASE_MS + 1);
    let second = play.load(2);
    play.commit(2, second);
    play.pass(FRESH_MS);
    let third = play.load(3);
    play.busy(asks(4));
    let before = play.state.clone();
    assert_eq!(
        play.commit(1, slow),
        (CommitOutcome::Overtaken, ids(&[])),
        "it ends nobody's load"
    );
    assert_eq!(play.state.value, before.value);
    assert_eq!(play.commit(3, third).1, ids(&[4]));
}

#[test]
fn caller_that_wants_newer_loads_over_fresh_and_only_one_does() {
    let mut play = Play::new();
    let first = play.load(1);
    play.commit(1, first);
    let newer = |token| Begin {
        over: true,
        seen: first,
        ..asks(token)
    };
    let Reply::Load {
        version,
        stale: None,
        ..
    } = play.begin(newer(2))
    else {
        panic!()
    };
    assert_eq!(play.busy(newer(3)), (500, None));
    assert!(
        matches!(play.begin(asks(4)), Reply::Fresh(_)),
        "to all others it is fresh"
    );
    play.commit(2, version);
    let Reply::Fresh(value) = play.begin(newer(3)) else {
        panic!()
    };
    assert_eq!(value.header.version, version);
}

#[test]
fn each_step_may_be_repeated() {
    let mut play = Play::new();
    let version = play.load(1);
    play.pass(100);
    assert_eq!(play.load(1), version, "the same load");
    let stored = play.commit(1, version).0;
    play.pass(100);
    assert_eq!(
        play.commit(1, version),
        (stored, ids(&[])),
        "and not a later soft expiry"
    );
    play.invalidate(false);
    assert_eq!(play.commit(1, version).0, CommitOutcome::Stale);
    assert_eq!(play.stands(), Some((version, Standing::Stale)));
    // After an invalidation, a repeat of the request begins a new load. The store does not mistake the first load's value for the new one.
    let again = play.load(1);
    assert!(again > version);
    assert_eq!(play.commit(1, version).0, CommitOutcome::Stale);
}

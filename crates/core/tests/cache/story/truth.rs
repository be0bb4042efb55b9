//! Invalidation, lost state, and values that stay.

use leasehold_core::cache::{
    CacheWorld, Commit, CommitOutcome, MEMORY, Reply, Standing, Step, Version,
};
use leasehold_core::{LockName, Now};

use crate::play::{FRESH_MS, LEASE_MS, Play, STALE_MS, asks, brings, ids, ttl};

#[test]
fn value_invalidated_during_its_load_is_stored_as_stale() {
    let mut play = Play::new();
    let version = play.load(1);
    play.busy(asks(2));
    assert_eq!(
        play.invalidate(false),
        ids(&[2]),
        "nobody waits for it any more"
    );
    assert_eq!(play.renew(1), Reply::NotLoading);
    let next = play.load(2);
    play.busy(asks(3));
    assert_eq!(
        play.commit(1, version),
        (CommitOutcome::Stale, ids(&[3])),
        "to be served as stale"
    );
    assert_eq!(play.stands(), Some((version, Standing::Stale)));
    assert_eq!(play.busy(asks(3)).1.unwrap().header.version, version);
    assert_eq!(play.commit(2, next).0, play.fresh());
    assert_eq!(play.stands(), Some((next, Standing::Fresh)));
}

#[test]
fn an_invalidated_value_is_stale_at_once_or_gone() {
    let mut play = Play::new();
    let version = play.load(1);
    play.commit(1, version);
    play.invalidate(false);
    assert_eq!(play.stands(), Some((version, Standing::Stale)));
    assert!(matches!(
        play.begin(asks(2)),
        Reply::Load { stale: Some(_), .. }
    ));
    play.invalidate(true);
    assert_eq!(play.stands(), None);
    assert!(matches!(
        play.begin(asks(3)),
        Reply::Load { stale: None, .. }
    ));
}

#[test]
fn stale_value_is_not_stored_without_stale_time() {
    let mut play = Play::new();
    let version = play.load(1);
    play.invalidate(false);
    let strict = Commit {
        stale_ms: 0,
        ..brings(1, version)
    };
    let reply = play.take(&Step::Commit(strict)).reply;
    assert_eq!(reply, Reply::Committed(CommitOutcome::Stale));
    assert_eq!(play.stands(), None);
}

#[test]
fn a_load_that_the_store_has_forgotten_fills_as_stale() {
    // The control is gone or new, by loss or by age.
    for (begun_anew, by_age) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut play = Play::new();
        let version = play.load(1);
        if by_age {
            play.pass(LEASE_MS + 15 * 60 * 1_000);
            let remembered = &mut play.state.clone();
            let kept = remembered
                .apply(play.now, &Step::Commit(brings(1, version)))
                .reply;
            assert_eq!(kept, Reply::Committed(play.fresh()));
        } else {
            play.state.control = None;
        }
        // No control remembers this.
        play.pass(1);
        play.invalidate(false);
        let next = begun_anew.then(|| play.load(2));
        assert_eq!(
            play.commit(1, version).0,
            CommitOutcome::Stale,
            "{begun_anew} {by_age}"
        );
        assert_eq!(play.stands(), Some((version, Standing::Stale)));
        if let Some(next) = next {
            assert_eq!(play.commit(2, next).0, play.fresh());
        }
    }
}

#[test]
fn numbers_rise_past_a_loss_and_with_a_clock_that_stands() {
    let mut play = Play::new();
    let first = play.load(1);
    play.invalidate(false);
    let second = play.load(2);
    assert!(
        second.get() > first.get() + 1,
        "K2, one between for the invalidation"
    );
    play.commit(2, second);
    // The control is gone and the wall clock went back. Only the stored value still shows the last number.
    play.state.control = None;
    play.now.wall_us -= 3_600_000_000;
    play.pass(FRESH_MS);
    let third = play.load(3);
    assert!(third > second, "K2");
    assert_eq!(play.commit(3, third).0, play.fresh());
}

/// The control is lost and the server's clock is set back, so the new numbers begin below those of loads in progress.
#[test]
fn load_before_lost_control_and_clock_step_is_dropped() {
    for (lasts, is_stored) in [(false, false), (true, false), (true, true)] {
        let mut play = Play::new();
        let old = play.load(1);
        play.state.control = None;
        play.now.wall_us -= 60_000_000;
        play.pass(1);
        play.invalidate(true);
        if !lasts {
            // Without a control, no invalidation is known.
            assert_eq!(play.commit(1, old).0, CommitOutcome::Stale);
            assert_eq!(play.stands(), Some((old, Standing::Stale)));
            continue;
        }
        let new = play.load(2);
        assert!(new < old, "K2 does not reach that far");
        play.busy(asks(3));
        if is_stored {
            play.commit(2, new);
        }
        let (kept, woken) = play.commit(1, old);
        assert_eq!(woken, ids(&[]), "the load that is waited for goes on");
        if is_stored {
            assert_eq!(kept, CommitOutcome::Overtaken);
        } else {
            assert_eq!((kept, play.stands()), (CommitOutcome::Stale, None));
            assert_eq!(play.commit(2, new), (play.fresh(), ids(&[3])));
        }
        assert_eq!(play.stands(), Some((new, Standing::Fresh)), "K3, K4");
    }
}

/// The stored version is ahead of the clock, so numbers are counted on from it, and the control that counted is lost.
#[test]
fn no_number_ahead_of_the_clock_is_given_out_twice() {
    for is_lost_before in [false, true] {
        let mut play = Play::new();
        let stored = play.load(1);
        play.commit(1, stored);
        play.invalidate(false);
        play.now.wall_us -= 60_000_000;
        if is_lost_before {
            play.state.control = None;
        }
        let old = play.load(2);
        play.pass(1);
        play.state.control = None;
        play.invalidate(false);
        let new = play.load(3);
        assert!(old > stored && new > old, "K2");
        assert_eq!(play.commit(2, old).0, CommitOutcome::Overtaken, "K3");
        assert_eq!(play.commit(3, new).0, play.fresh());
    }
}

/// A lost control may have counted on from the stored version, by less than an hour. The token keeps two of them apart.
#[test]
fn numbers_past_a_stored_version_ahead_leap_by_hour_and_token() {
    const HOUR_US: u64 = 3_600_000_000;
    for (ahead_us, token, leap) in [
        (0, 3, None),
        (1, 1 << 20, Some(HOUR_US)),
        (1, 3, Some(HOUR_US + 3 * 1_024)),
        (1, (1 << 20) + 3, Some(HOUR_US + 3 * 1_024)),
    ] {
        let mut play = Play::new();
        let stored = play.load(1);
        play.commit(1, stored);
        play.invalidate(false);
        play.state.control = None;
        play.now.wall_us = stored.get() - ahead_us;
        // One number each for the value that leaps, the new control and the load.
        let next = leap.map_or(2, |leap| leap + 3);
        assert_eq!(
            play.load(token).get(),
            stored.get() + next,
            "{ahead_us} {token}"
        );
    }
}

#[test]
fn value_that_is_no_entry_is_not_touched() {
    let mut play = Play::new();
    play.state.foreign = Some("list".to_owned());
    let before = play.state.clone();
    let token = asks(1).token;
    for step in [
        Step::Begin(asks(1)),
        Step::Renew {
            token,
            lease: ttl(10),
        },
        Step::Commit(brings(1, Version::new(5))),
        Step::Abandon {
            token,
            back_off: Some((ttl(10), String::new())),
        },
        Step::Invalidate { remove: true },
    ] {
        assert_eq!(play.take(&step).reply, Reply::Foreign("list".into()), "K8");
        assert_eq!(play.state, before);
    }
}

#[test]
fn world_keeps_nothing_of_ended_locks() {
    let mut world = CacheWorld::default();
    let [home, news] = ["home", "news"].map(|name| LockName::new(name).unwrap());
    let now = Now::at_micros(1_000_000_000);
    let Reply::Load { version, .. } = world.apply(now, &home, &Step::Begin(asks(1))).reply else {
        panic!()
    };
    world.apply(now, &home, &Step::Commit(brings(1, version)));
    assert_eq!(
        world
            .apply(now, &news, &Step::Invalidate { remove: false })
            .reply,
        Reply::Invalidated
    );
    assert_eq!(world.len(), 1, "nothing is kept of what never was");
    assert!(world.look(now, &home).is_some() && world.look(now, &news).is_none());
    let end =
        now.clock_us + 1_000 * (STALE_MS + FRESH_MS) + u64::try_from(MEMORY.as_micros()).unwrap();
    world.sweep(Now::at_micros(end + 1_000));
    assert!(world.is_empty(), "K7");
}

//! The rules as stories, for what the random sequences do not judge: exact times, and values that stay or go.

use std::time::Duration;

use leasehold_core::cache::{
    Begin, CacheWorld, Commit, CommitOutcome, EntryState, Format, MEMORY, Outcome, Reply, Standing,
    Step, Token, Value, Version,
};
use leasehold_core::{ClientId, LockName, Now};

use crate::ttl;

const LEASE_MS: u64 = 2_000;
const FRESH_MS: u64 = 60_000;
const STALE_MS: u64 = 600_000;

/// An entry with a clock, and steps in short words.
struct Play {
    state: EntryState,
    now: Now,
}

/// A subscribed client that has seen no version and takes any fresh value.
fn asks(token: u128) -> Begin {
    Begin {
        token: Token(token),
        seen: Version::default(),
        over: false,
        lease: ttl(LEASE_MS),
        listener: Some(ClientId::new(u64::try_from(token).unwrap())),
    }
}

fn brings(token: u128, version: Version) -> Commit {
    Commit {
        token: Token(token),
        version,
        fresh_ms: FRESH_MS,
        stale_ms: STALE_MS,
        load_ms: 20,
        format: Format::Raw,
        body: format!("{token}@{}", version.get()).into_bytes().into(),
    }
}

impl Play {
    fn new() -> Self {
        Self {
            state: EntryState::default(),
            now: Now::at_micros(1_700_000_000_000_000),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.clock_us += ms * 1_000;
        self.now.wall_us += ms * 1_000;
    }

    fn take(&mut self, step: &Step) -> Outcome {
        self.state.apply(self.now, step)
    }

    fn begin(&mut self, begin: Begin) -> Reply {
        self.take(&Step::Begin(begin)).reply
    }

    /// Asks, and must become the loader.
    #[track_caller]
    fn load(&mut self, token: u128) -> Version {
        match self.begin(asks(token)) {
            Reply::Load { version, .. } => version,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and must wait for another loader. Returns the poll interval, and the stale value if any.
    #[track_caller]
    fn busy(&mut self, begin: Begin) -> (u64, Option<Value>) {
        match self.begin(begin) {
            Reply::Busy { poll_after, stale } => {
                (u64::try_from(poll_after.as_millis()).unwrap(), stale)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Commits a value. Returns the outcome and the clients to wake.
    #[track_caller]
    fn commit(&mut self, token: u128, version: Version) -> (CommitOutcome, Vec<ClientId>) {
        match self.take(&Step::Commit(brings(token, version))) {
            Outcome {
                reply: Reply::Committed(kept),
                wakes,
            } => (kept, wakes),
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, token: u128) -> Reply {
        let lease = ttl(LEASE_MS);
        let token = Token(token);
        self.take(&Step::Renew { token, lease }).reply
    }

    /// Ends a load without a value. Returns the clients to wake.
    fn abandon(&mut self, token: u128, back_off_ms: Option<u64>) -> Vec<ClientId> {
        let back_off = back_off_ms.map(|ms| (ttl(ms), "no database".to_owned()));
        let token = Token(token);
        let outcome = self.take(&Step::Abandon { token, back_off });
        assert_eq!(outcome.reply, Reply::Abandoned);
        outcome.wakes
    }

    /// The clients to wake.
    fn invalidate(&mut self, remove: bool) -> Vec<ClientId> {
        let outcome = self.take(&Step::Invalidate { remove });
        assert_eq!(outcome.reply, Reply::Invalidated);
        outcome.wakes
    }

    /// The stored version, and whether it may be used.
    fn stands(&self) -> Option<(Version, Standing)> {
        let value = self.state.look(self.now)?;
        Some((value.header.version, value.standing(self.now)))
    }

    /// The soft expiry of a value that is stored now.
    fn fresh(&self) -> CommitOutcome {
        CommitOutcome::Fresh(self.now.millis() + FRESH_MS)
    }

    /// Asks, and must be refused. Returns the kind of refusal.
    #[track_caller]
    fn busy_or_back_off(&mut self, begin: Begin) -> &'static str {
        match self.begin(begin) {
            Reply::Busy { .. } => "busy",
            Reply::BackOff { .. } => "back-off",
            other => panic!("{other:?}"),
        }
    }
}

fn ids(tokens: &[u64]) -> Vec<ClientId> {
    tokens.iter().copied().map(ClientId::new).collect()
}

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

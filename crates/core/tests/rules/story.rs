//! The rules as a story: what a person would try first, one test each.

mod rolled_back;

use std::time::Duration;

use leasehold_core::{
    ClientId, Fence, Foreign, LockName, Mode, Now, Outcome, Owner, Presence, Reply, Step, Wait,
    Waiter, Who, World,
};

use crate::run::ttl;

const START_MS: u64 = 1_700_000_000_000;

/// One lock with a clock, whose owners have names.
pub(crate) struct Stage {
    world: World,
    name: LockName,
    pub(crate) now_ms: u64,
    pub(crate) deaf: Deaf,
}

/// Those whom nobody could tell of a grant.
#[derive(Default)]
pub(crate) struct Deaf(pub(crate) Vec<&'static str>);

impl Presence for Deaf {
    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        self.0.iter().any(|who| *who == waiter.owner.note())
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            world: World::default(),
            name: LockName::new("orders:42").unwrap(),
            now_ms: START_MS,
            deaf: Deaf::default(),
        }
    }

    pub(crate) fn queue(&self) -> Vec<String> {
        let lock = self.world.get(&self.name);
        let queue = lock.into_iter().flat_map(|lock| &lock.queue);
        queue.map(|waiter| waiter.owner.note()).collect()
    }

    pub(crate) fn is_held_by_another_program(&mut self, expires_at_ms: Option<u64>) {
        self.world.entry(&self.name).foreign = Some(Foreign {
            kind: "string".into(),
            value: b"random".into(),
            expires_at_ms,
        });
    }

    pub(crate) fn step(&mut self, step: &Step) -> Outcome {
        let now = Now::at_micros(self.now_ms * 1_000);
        self.world.apply(now, &self.name, step, &self.deaf)
    }

    pub(crate) fn acquires(&mut self, who: &str, ms: u64, waits: bool) -> Reply {
        let step = Step::Acquire {
            owner: owner(who),
            mode: Mode::Exclusive,
            ttl: ttl(ms),
            wait: waits.then_some(Wait { listening: true }),
        };
        self.step(&step).reply
    }

    pub(crate) fn extends(&mut self, who: &str, ms: u64) -> Reply {
        let step = Step::Extend {
            owner: owner(who),
            ttl: ttl(ms),
            block: false,
            fence: None,
        };
        self.step(&step).reply
    }

    pub(crate) fn releases(&mut self, who: &str, keep_ms: Option<u64>) -> Outcome {
        let step = Step::Release {
            owner: owner(who),
            keep: keep_ms.map(ttl),
            fence: None,
        };
        self.step(&step)
    }

    pub(crate) fn refills(&mut self, who: &str) -> Reply {
        let (owner, ttl, fence) = (owner(who), ttl(30_000), None);
        let block = true;
        self.step(&Step::Extend {
            owner,
            ttl,
            block,
            fence,
        })
        .reply
    }

    pub(crate) fn breaks(&mut self, fence: Fence) -> Reply {
        self.step(&Step::Break { fence }).reply
    }

    pub(crate) fn holder(&mut self) -> Option<String> {
        let Reply::Seen(seen) = self.step(&Step::Inspect).reply else {
            unreachable!()
        };
        seen.holder.map(|holder| match holder.who {
            Who::Owner(owner) => owner.note(),
            Who::Foreign { kind, .. } => format!("a foreign {kind}"),
        })
    }
}

pub(crate) fn owner(who: &str) -> Owner {
    let number = who
        .bytes()
        .fold(0, |number, byte| number * 256 + u128::from(byte));
    Owner::new(number, ClientId::new(1), "web-3", 4121, who).unwrap()
}

#[track_caller]
pub(crate) fn fence(reply: &Reply) -> Fence {
    match reply {
        Reply::Held(held) => held.fence.unwrap(),
        other => panic!("expected a lease, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn ahead(reply: &Reply) -> (u32, Duration) {
    match reply {
        Reply::Busy(busy) => (busy.ahead, busy.poll_after),
        other => panic!("expected busy, got {other:?}"),
    }
}

#[test]
fn a_release_hands_over_to_the_first_in_line() {
    let mut stage = Stage::new();
    let first = fence(&stage.acquires("ann", 30_000, false));
    assert_eq!(
        ahead(&stage.acquires("bob", 30_000, true)),
        (0, Duration::from_secs(1))
    );
    assert_eq!(
        ahead(&stage.acquires("cid", 30_000, true)),
        (1, Duration::from_secs(2))
    );

    let outcome = stage.releases("ann", None);
    assert_eq!(outcome.reply, Reply::Released);
    let [wake] = outcome.wakes.as_slice() else {
        panic!("one wake: {outcome:?}")
    };
    assert_eq!(wake.owner, owner("bob"));
    assert!(wake.fence > Some(first));
    // The lock never looked free: who asks now stands behind those who waited.
    assert_eq!(ahead(&stage.acquires("dan", 30_000, false)).0, 1);
    assert_eq!(
        Some(fence(&stage.acquires("bob", 30_000, true))),
        wake.fence
    );
}

#[test]
fn who_does_not_claim_in_time_is_passed_over() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    stage.acquires("bob", 30_000, true);
    stage.acquires("cid", 30_000, true);
    stage.releases("ann", None);
    stage.now_ms += 3_000;
    assert_eq!(
        ahead(&stage.acquires("cid", 30_000, true)),
        (0, Duration::from_millis(1))
    );
    stage.now_ms += 1;
    fence(&stage.acquires("cid", 30_000, true));
    assert!(matches!(
        stage.extends("bob", 30_000),
        Reply::NotHeld(Some(_))
    ));
}

#[test]
fn who_would_not_hear_is_passed_over_but_not_who_only_polls() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    stage.acquires("bob", 30_000, true);
    stage.step(&Step::Acquire {
        owner: owner("cid"),
        mode: Mode::Exclusive,
        ttl: ttl(30_000),
        wait: Some(Wait { listening: false }),
    });
    stage.deaf.0 = vec!["bob", "cid"];
    stage.releases("ann", None);
    assert_eq!(stage.holder().as_deref(), Some("cid"));
}

#[test]
fn all_in_line_ask_when_the_lease_ends_one_after_the_other() {
    let mut stage = Stage::new();
    stage.acquires("ann", 1_500, false);
    for (who, expected) in [("bob", 1_000), ("cid", 1_511), ("dan", 1_521)] {
        let (_, poll_after) = ahead(&stage.acquires(who, 30_000, true));
        assert_eq!(poll_after, Duration::from_millis(expected), "{who}");
    }
    // While the lease is long, the place decides.
    stage.extends("ann", 30_000);
    assert_eq!(
        ahead(&stage.acquires("dan", 30_000, true)),
        (2, Duration::from_secs(3))
    );
}

/// Whoever is first by then joined far behind and has heard nothing since.
#[test]
fn an_unclaimed_grant_in_a_fast_line_costs_its_window_and_10_ms_for_each_waiter() {
    const WAITERS: u64 = 100;
    let mut stage = Stage::new();
    stage.acquires("w0", 30_000, false);
    stage.acquires("w1", 30_000, true);
    stage.releases("w0", None);
    let mut polls = Vec::new();
    for number in 2..2 + WAITERS {
        let (_, poll_after) = ahead(&stage.acquires(&format!("w{number}"), 30_000, true));
        polls.push(stage.now_ms + u64::try_from(poll_after.as_millis()).unwrap());
    }
    // All hold for a moment, but one that never claims what it was given.
    for number in 1..50 {
        stage.now_ms += 5;
        stage.releases(&format!("w{number}"), None);
    }
    let granted_ms = stage.now_ms;
    let (next_poll, next) = (51_u64..)
        .zip(&polls[49..])
        .map(|(next, at)| (*at, next))
        .min()
        .unwrap();
    assert!(
        next_poll <= granted_ms + 3_000 + 1 + 10 * WAITERS,
        "{next_poll}"
    );
    assert!(next_poll > granted_ms + 3_000 - 5 * 50, "the window counts");
    stage.now_ms = next_poll;
    let first = stage.acquires(&format!("w{next}"), 30_000, true);
    assert_eq!(next, 51);
    fence(&first);
}

#[test]
fn a_foreign_lock_without_a_ttl_is_waited_for_and_never_taken() {
    let mut stage = Stage::new();
    let name = stage.name.clone();
    stage.world.entry(&name).foreign = Some(Foreign {
        kind: "hash".into(),
        value: Vec::new(),
        expires_at_ms: None,
    });
    for _ in 0..10 {
        // Nobody will wake us, so the first in line looks often.
        assert_eq!(
            ahead(&stage.acquires("ann", 30_000, true)),
            (0, Duration::from_millis(50))
        );
        assert!(matches!(
            stage.breaks(Fence::new(0)),
            Reply::NotHeld(Some(_))
        ));
        stage.now_ms += 10_000;
    }
    assert_eq!(stage.holder().as_deref(), Some("a foreign hash"));
    stage.world.entry(&name).foreign = None;
    fence(&stage.acquires("ann", 30_000, true));
}

#[test]
fn at_least_hold_keeps_others_out_until_its_end() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    stage.acquires("bob", 30_000, true);
    let outcome = stage.releases("ann", Some(5_000));
    assert_eq!((outcome.reply, outcome.wakes), (Reply::Released, vec![]));
    stage.now_ms += 5_000;
    assert_eq!(stage.holder().as_deref(), Some("ann"));
    stage.now_ms += 1;
    fence(&stage.acquires("bob", 30_000, true));
}

#[test]
fn an_operator_breaks_the_hold_whose_fence_was_seen_and_no_other() {
    let mut stage = Stage::new();
    let old = fence(&stage.acquires("ann", 30_000, false));
    assert_eq!(stage.breaks(old), Reply::Released);
    let next = fence(&stage.acquires("bob", 30_000, false));
    assert!(matches!(stage.breaks(old), Reply::NotHeld(Some(_))));
    assert_eq!(stage.holder().as_deref(), Some("bob"));
    assert_eq!(stage.breaks(next), Reply::Released);
    assert!(matches!(stage.extends("bob", 30_000), Reply::NotHeld(None)));
}

#[test]
fn a_fence_after_the_loss_of_all_data_is_higher() {
    let mut stage = Stage::new();
    let before = fence(&stage.acquires("ann", 30_000, false));
    stage.world = World::default();
    stage.now_ms += 1;
    assert!(matches!(stage.extends("ann", 30_000), Reply::NotHeld(None)));
    assert!(fence(&stage.acquires("bob", 30_000, false)) > before);
}

#[test]
fn a_retry_finds_what_the_first_one_did() {
    let mut stage = Stage::new();
    let first = fence(&stage.acquires("ann", 30_000, false));
    assert_eq!(fence(&stage.acquires("ann", 30_000, false)), first);
    assert_eq!(fence(&stage.extends("ann", 30_000)), first);
    assert_eq!(stage.releases("ann", None).reply, Reply::Released);
    // The caller cannot tell this from a lost lease, but nothing else has changed.
    assert_eq!(stage.releases("ann", None).reply, Reply::NotHeld(None));
}

#[test]
fn looking_hands_nothing_over() {
    let mut stage = Stage::new();
    stage.acquires("ann", 10, false);
    stage.acquires("bob", 30_000, true);
    stage.now_ms += 11;
    // C6 is about steps that change something: free, with a waiter, until the next of these.
    assert_eq!(stage.holder(), None);
    assert!(matches!(
        stage.extends("ann", 30_000),
        Reply::NotHeld(Some(_))
    ));
    assert_eq!(stage.holder().as_deref(), Some("bob"));
}

#[test]
fn the_holder_is_told_each_time_the_first_in_line_asks() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    let ask = |who: &str, wait| Step::Acquire {
        owner: owner(who),
        mode: Mode::Exclusive,
        ttl: ttl(30_000),
        wait,
    };
    let waits = Some(Wait { listening: true });
    for (who, wait, wanted) in [
        ("bob", None, None),
        ("bob", waits, Some("ann")),
        ("cid", waits, None),
        ("bob", waits, Some("ann")),
    ] {
        assert_eq!(stage.step(&ask(who, wait)).wanted, wanted.map(owner));
    }
}

#[test]
fn a_holder_that_draws_more_fences_is_known_by_that_of_its_grant() {
    let mut stage = Stage::new();
    let before = fence(&stage.acquires("ann", 30_000, false));
    stage.releases("ann", None);
    stage.now_ms += 1;
    let first = fence(&stage.acquires("ann", 30_000, false));
    stage.now_ms += 5_000;
    let last = fence(&stage.refills("ann"));
    assert!(last.get() >= first.get() + Fence::REFILL * Fence::BLOCK);
    assert_eq!(fence(&stage.extends("ann", 30_000)), first);
    assert_eq!(fence(&stage.acquires("ann", 30_000, false)), first);

    let Reply::Seen(seen) = stage.step(&Step::Inspect).reply else {
        unreachable!()
    };
    let holder = seen.holder.unwrap();
    assert_eq!((seen.fence, holder.fence), (Some(last), Some(first)));
    assert_eq!(holder.held_for, Some(Duration::from_secs(5)));

    let beyond = Fence::new(last.get() + Fence::BLOCK);
    for other in [before, Fence::new(first.get() - 1), beyond] {
        assert!(matches!(stage.breaks(other), Reply::NotHeld(Some(_))));
    }
    let mut world = stage.world.clone();
    for own in [0, 1, 63, 64, 1_000].map(|by| Fence::new(first.get() + by)) {
        assert_eq!(stage.breaks(own), Reply::Released);
        stage.world.clone_from(&world);
    }
    let end = Fence::new(beyond.get() - 1);
    assert_eq!(stage.breaks(end), Reply::Released);

    // The next holder has nothing of it.
    let next = fence(&stage.acquires("bob", 30_000, false));
    assert!(next >= beyond);
    assert!(matches!(stage.breaks(end), Reply::NotHeld(Some(_))));

    // What was lost is drawn anew: what the holder had before is no longer known.
    world.entry(&stage.name).fence = None;
    stage.world = world;
    stage.now_ms += 1;
    let anew = fence(&stage.refills("ann"));
    let known = anew.get() - (Fence::REFILL - 1) * Fence::BLOCK;
    assert!(matches!(stage.breaks(first), Reply::NotHeld(Some(_))));
    assert_eq!(stage.breaks(Fence::new(known)), Reply::Released);
}

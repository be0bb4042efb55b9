//! The rules as stories, one test each.

use std::time::Duration;

use leasehold_core::{Block, Counter, Fence, LockName, Reply, Step, Wait};

use crate::stage::{Stage, acquire, ahead, fence, owner};

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
    // The lock never looked free: a new request queues behind the earlier waiters.
    assert_eq!(ahead(&stage.acquires("dan", 30_000, false)).0, 1);
    assert_eq!(
        Some(fence(&stage.acquires("bob", 30_000, true))),
        wake.fence
    );
}

#[test]
fn unclaimed_grant_goes_to_the_next_waiter() {
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

/// The first waiter by then joined far behind and has received nothing since.
#[test]
fn unclaimed_grant_costs_claim_window_and_10_ms_per_waiter() {
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
    // All hold for a moment, except one that never claims its grant.
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
    stage.is_held_by_another_program();
    for _ in 0..10 {
        // A foreign holder sends no wake, so the first in line polls often.
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
    assert_eq!(stage.holder().as_deref(), Some("a foreign string"));
    let name = stage.name.clone();
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
fn looking_hands_nothing_over() {
    let mut stage = Stage::new();
    stage.acquires("ann", 10, false);
    stage.acquires("bob", 30_000, true);
    stage.now_ms += 11;
    // C6 applies to steps that change something: after this the lock is free, with a waiter, until the next one.
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
    let waits = Some(Wait { listening: true });
    for (who, wait, wanted) in [
        ("bob", None, None),
        ("bob", waits, Some("ann")),
        ("cid", waits, None),
        ("bob", waits, Some("ann")),
    ] {
        let asked = stage.step(&acquire(who, 30_000, Block::ONE, wait));
        assert_eq!(asked.wanted, Vec::from_iter(wanted.map(owner)));
    }
}

#[test]
fn holder_of_a_block_is_shown_by_first_fence_broken_by_any() {
    let mut stage = Stage::new();
    let before = fence(&stage.acquires("ann", 30_000, false));
    stage.releases("ann", None);
    stage.now_ms += 1;
    let first = fence(&stage.draws("ann", 64));
    stage.now_ms += 5_000;
    assert_eq!(fence(&stage.extends("ann", 30_000)), first);
    assert_eq!(fence(&stage.acquires("ann", 30_000, false)), first);

    let Reply::Seen(seen) = stage.step(&Step::Inspect).reply else {
        unreachable!()
    };
    let holder = seen.holder.unwrap();
    assert_eq!(holder.fence, Some(first));
    assert_eq!(holder.held_for, Some(Duration::from_secs(5)));

    let nth = |by| Fence::new(first.get() + by);
    for other in [before, Fence::new(first.get() - 1), nth(64)] {
        assert!(matches!(stage.breaks(other), Reply::NotHeld(Some(_))));
    }
    let world = stage.world.clone();
    for own in [0, 1, 63].map(nth) {
        stage.world.clone_from(&world);
        assert_eq!(stage.breaks(own), Reply::Released);
    }

    // The next holder gets none of these fences.
    let next = fence(&stage.acquires("bob", 30_000, false));
    assert!(next > nth(63));
    assert!(matches!(stage.breaks(nth(63)), Reply::NotHeld(Some(_))));
}

#[test]
fn all_names_of_a_store_draw_from_one_counter() {
    let mut stage = Stage::new();
    let here = fence(&stage.draws("ann", 64));
    stage.name = LockName::new("orders:43").unwrap();
    let there = fence(&stage.acquires("bob", 30_000, false));
    assert_eq!(there.get(), here.get() + 64);
    let names: Vec<_> = stage.world.names().map(LockName::to_string).collect();
    assert_eq!(names, ["orders:42", "orders:43"]);
    stage.releases("bob", None);
    stage.name = LockName::new("orders:42").unwrap();
    stage.releases("ann", None);
    assert_eq!(stage.world.names().count(), 0, "nothing stays behind");
    assert!(fence(&stage.acquires("ann", 30_000, false)) > there);
}

#[test]
fn a_waiter_is_granted_as_many_fences_as_it_asked_for() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    let waits = Some(Wait { listening: true });
    let ask = acquire("bob", 30_000, Block::nearest(17), waits);
    stage.step(&ask);
    let [wake] = <[_; 1]>::try_from(stage.releases("ann", None).wakes).unwrap();
    assert_eq!(wake.block, Block::nearest(17));
    let Reply::Held(held) = stage.step(&ask).reply else {
        unreachable!()
    };
    assert_eq!((held.fence, held.block), (wake.fence, wake.block));
}

#[test]
fn a_hold_outlives_the_loss_of_the_counter_and_keeps_its_fence() {
    let mut stage = Stage::new();
    let first = fence(&stage.acquires("ann", 30_000, false));
    stage.world.counter = Counter::default();
    for _ in 0..2 {
        assert_eq!(
            fence(&stage.extends_under(Some(first), "ann", 30_000)),
            first
        );
    }
    assert_eq!(stage.releases("ann", None).reply, Reply::Released);
    stage.now_ms += 1;
    assert!(fence(&stage.acquires("bob", 30_000, false)) > first);
}

/// A failover to a lagging replica: the owner that was granted the lock since then waits again.
#[test]
fn a_look_tells_by_which_grant_an_owner_holds() {
    let mut stage = Stage::new();
    stage.acquires("ann", 5_000, false);
    stage.acquires("bob", 30_000, true);
    let replica = stage.world.clone();
    stage.now_ms += 1_000;
    stage.releases("ann", None);
    let of_bob = fence(&stage.extends("bob", 30_000));
    stage.world = replica;
    let is_held_under = |stage: &mut Stage, fence, who| {
        let Reply::Seen(seen) = stage.step(&Step::Inspect).reply else {
            unreachable!()
        };
        seen.is_held_under(&owner(who), fence)
    };
    assert!(!is_held_under(&mut stage, of_bob, "bob"), "he only waits");
    stage.now_ms += 5_001;
    stage.acquires("cid", 30_000, true);
    assert!(
        !is_held_under(&mut stage, of_bob, "bob"),
        "by a newer grant"
    );
    let newer = fence(&stage.extends("bob", 30_000));
    assert!(is_held_under(&mut stage, newer, "bob"));
    assert!(!is_held_under(&mut stage, newer, "cid"));
}

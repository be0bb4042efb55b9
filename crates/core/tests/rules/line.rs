//! The queue: which waiters are passed over and for how long, and which is first behind a foreign lock. One story each.

use std::time::Duration;

use leasehold_core::{Block, PASSED_OVER, Reply, Step, Wait, poll_after};

use crate::stage::{Stage, acquire, ahead, fence, owner};

#[test]
fn a_waiter_that_was_passed_over_keeps_its_place_for_2_s() {
    for (ms, comes_back) in [(2_000, true), (2_001, false)] {
        let mut stage = Stage::new();
        stage.acquires("ann", 30_000, false);
        for who in ["bob", "cid", "dan"] {
            stage.acquires(who, 30_000, true);
        }
        stage.deaf.0 = vec!["bob"];
        stage.releases("ann", None);
        assert_eq!(stage.holder().as_deref(), Some("cid"));
        stage.deaf.0.clear();
        stage.now_ms += ms;
        if comes_back {
            assert_eq!(ahead(&stage.acquires("bob", 30_000, true)).0, 0);
            stage.now_ms += 500;
        }
        let outcome = stage.releases("cid", None);
        let next = if comes_back { "bob" } else { "dan" };
        assert_eq!(outcome.wakes[0].owner, owner(next));
        assert_eq!(stage.queue(), if comes_back { vec!["dan"] } else { vec![] });
    }
}

#[test]
fn passed_over_waiter_blocks_no_other() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    stage.acquires("bob", 30_000, true);
    stage.deaf.0 = vec!["bob"];
    assert_eq!(stage.releases("ann", None).wakes, vec![]);
    assert_eq!((stage.holder(), stage.queue()), (None, vec!["bob".into()]));
    match stage.acquires("cid", 30_000, false) {
        Reply::Held(held) => assert_eq!(held.queued, 1),
        other => panic!("{other:?}"),
    }
    // Passed over again, it has no more time than before.
    stage.now_ms += 1_500;
    stage.releases("cid", None);
    stage.now_ms += 501;
    stage.acquires("dan", 30_000, false);
    assert_eq!(stage.queue(), Vec::<String>::new());
}

#[test]
fn new_first_waiter_behind_a_foreign_lock_is_told() {
    let mut stage = Stage::new();
    stage.is_held_by_another_program();
    for (who, ms) in [("ann", 50), ("bob", 90), ("cid", 90)] {
        let (_, poll_after) = ahead(&stage.acquires(who, 30_000, true));
        assert_eq!(poll_after, Duration::from_millis(ms), "{who}");
    }
    assert_eq!(stage.releases("bob", None).first, None);
    assert_eq!(stage.releases("ann", None).first, Some(owner("cid")));
    // Silent waiters also leave at the next request.
    stage.acquires("dan", 30_000, true);
    stage.now_ms += 16_000;
    assert_eq!(stage.step(&asks("eve")).first, None, "it asks itself");
    assert_eq!(stage.queue(), ["eve"]);
    stage.now_ms += 10_000;
    stage.acquires("fay", 30_000, true);
    stage.now_ms += 6_000;
    let outcome = stage.step(&asks("gus"));
    assert_eq!(
        (outcome.first, ahead(&outcome.reply).0),
        (Some(owner("fay")), 1)
    );
}

#[test]
fn new_first_waiter_that_only_polls_is_not_told() {
    let mut stage = Stage::new();
    stage.is_held_by_another_program();
    stage.acquires("ann", 30_000, true);
    stage.step(&waits("bob", false));
    assert_eq!(stage.releases("ann", None).first, None);
    assert_eq!(stage.queue(), ["bob"]);
}

fn asks(who: &str) -> Step {
    waits(who, true)
}

fn waits(who: &str, listening: bool) -> Step {
    acquire(who, 30_000, Block::ONE, Some(Wait { listening }))
}

/// They wait behind a lease of seconds.
fn a_line_of(stage: &mut Stage, waiters: &[(&str, u64)]) {
    stage.acquires("ann", 30_000, false);
    for (who, ms) in waiters {
        stage.acquires(who, *ms, true);
    }
}

#[test]
fn waiter_sleeping_past_a_short_claim_is_told_when_it_ends() {
    let mut stage = Stage::new();
    a_line_of(
        &mut stage,
        &[("bob", 200), ("cid", 30_000), ("dan", 30_000)],
    );
    let outcome = stage.releases("ann", None);
    assert_eq!(outcome.wakes[0].owner, owner("bob"));
    assert_eq!(outcome.first, Some(owner("cid")));
    let told = ahead(&stage.acquires("cid", 30_000, true));
    assert_eq!(told, (0, Duration::from_millis(201)));
    // Bob is late, and no other client has asked.
    stage.now_ms += 201;
    fence(&stage.acquires("cid", 30_000, true));
    // A long claim leaves time to ask.
    let outcome = stage.releases("cid", None);
    assert_eq!((outcome.wakes.len(), outcome.first), (1, None));
}

#[test]
fn short_claim_is_not_announced_while_a_waiter_polls_in_time() {
    // Cid is to ask after 1011 ms: soon after 200 ms, not long after, or overdue.
    for (ms, told) in [(760, true), (761, false), (1_011, false), (1_012, true)] {
        let mut stage = Stage::new();
        a_line_of(&mut stage, &[("bob", 200)]);
        stage.extends("ann", 1_000);
        stage.acquires("cid", 30_000, true);
        stage.extends("ann", 30_000);
        stage.now_ms += ms;
        let first = stage.releases("ann", None).first;
        assert_eq!(first, told.then(|| owner("cid")), "{ms}");
    }
    // The caller gets a reply, not a wake.
    let mut stage = Stage::new();
    a_line_of(&mut stage, &[("bob", 200), ("cid", 30_000)]);
    stage.extends("ann", 100);
    stage.now_ms += 101;
    let outcome = stage.step(&asks("cid"));
    assert_eq!((outcome.wakes.len(), outcome.first), (1, None));
    assert_eq!(ahead(&outcome.reply), (0, Duration::from_millis(201)));
}

#[test]
fn of_a_short_claim_the_first_is_told_that_can_be() {
    let mut stage = Stage::new();
    a_line_of(
        &mut stage,
        &[("bob", 999), ("cid", 999), ("dan", 999), ("eve", 999)],
    );
    stage.deaf.0 = vec!["cid"];
    assert_eq!(stage.releases("ann", None).first, Some(owner("dan")));
    assert_eq!(stage.queue(), ["cid", "dan", "eve"], "it keeps its place");
    // If a waiter gets a short grant by its own request, the store also notifies the next waiter.
    stage.now_ms += 1_000;
    assert_eq!(stage.step(&asks("dan")).first, Some(owner("eve")));
    assert_eq!(
        stage.releases("dan", None).first,
        None,
        "nobody is behind eve"
    );
    assert_eq!(stage.holder().as_deref(), Some("eve"));
}

#[test]
fn claim_of_a_second_notifies_no_other_waiter() {
    let mut stage = Stage::new();
    a_line_of(&mut stage, &[("bob", 1_000), ("cid", 200), ("dan", 200)]);
    assert_eq!(stage.releases("ann", None).first, None);
    assert_eq!(stage.releases("bob", None).first, Some(owner("dan")));
}

#[test]
fn dead_waiters_behind_a_foreign_lock_do_not_count() {
    let mut stage = Stage::new();
    stage.is_held_by_another_program();
    for who in ["ann", "bob", "cid", "dan"] {
        stage.acquires(who, 30_000, true);
    }
    stage.deaf.0 = vec!["ann", "bob"];
    for (who, place, ms) in [("dan", 3, 90), ("cid", 2, 50)] {
        let found = ahead(&stage.acquires(who, 30_000, true));
        assert_eq!(found, (place, Duration::from_millis(ms)), "{who}");
    }
    // Requests that do not wait leave the queue unchanged.
    stage.now_ms += 2_001;
    stage.acquires("eve", 30_000, false);
    assert_eq!(stage.queue(), ["ann", "bob", "cid", "dan"]);
    assert_eq!(ahead(&stage.acquires("dan", 30_000, true)).0, 1);
    assert_eq!(stage.queue(), ["cid", "dan"]);
}

#[test]
fn a_silent_waiter_in_front_does_not_count_behind_a_holder() {
    let mut stage = Stage::new();
    stage.acquires("ann", 30_000, false);
    for who in ["bob", "cid"] {
        stage.acquires(who, 30_000, true);
    }
    // Bob is silent from now on: his next poll was due after a second, and he counts as silent 15 s later.
    stage.now_ms += 15_500;
    assert_eq!(ahead(&stage.acquires("cid", 30_000, true)).0, 1);
    stage.now_ms += 501;
    stage.acquires("dan", 30_000, false);
    assert_eq!(
        stage.queue(),
        ["bob", "cid"],
        "who only tries leaves the line"
    );
    let outcome = stage.step(&asks("cid"));
    assert_eq!(ahead(&outcome.reply).0, 0);
    assert_eq!(outcome.wanted, [owner("ann")], "the holder hears of it");
    assert_eq!(stage.queue(), ["cid"]);
}

#[test]
fn of_many_that_cannot_be_told_the_first_keep_their_places() {
    let names: Vec<&'static str> = (0..40)
        .map(|number| &*format!("waiter-{number:02}").leak())
        .collect();
    for foreign in [false, true] {
        let mut stage = Stage::new();
        if foreign {
            stage.is_held_by_another_program();
        } else {
            stage.acquires("ann", 30_000, false);
        }
        for name in &names {
            stage.acquires(name, 30_000, true);
        }
        stage.acquires("last", 30_000, true);
        stage.deaf.0.clone_from(&names);
        if foreign {
            assert_eq!(ahead(&stage.acquires("last", 30_000, true)).0, 32);
            assert_eq!(stage.queue().pop().as_deref(), Some("last"));
        } else {
            stage.releases("ann", None);
            assert_eq!(stage.holder().as_deref(), Some("last"));
        }
        assert_eq!(stage.queue()[..32], names[..PASSED_OVER]);
        assert_eq!(stage.queue().len(), PASSED_OVER + usize::from(foreign));
    }
}

/// Clients poll up to 10 % later than told, except the first in line.
#[test]
fn behind_another_program_up_to_32_dead_in_front_cost_100_ms() {
    let polls: Vec<_> = (0..400)
        .map(|ahead| poll_after(ahead, None, true, true))
        .collect();
    for listening in [true, false] {
        assert_eq!(poll_after(0, None, true, listening).as_millis(), 50);
    }
    assert!(
        polls.is_sorted(),
        "nobody asks before one that is before it"
    );
    for poll in &polls[..=PASSED_OVER] {
        assert!(*poll * 11 / 10 < Duration::from_millis(100), "{poll:?}");
    }
}

#[test]
fn poll_interval_grows_with_the_place_and_ends_at_15_s() {
    for (foreign, listening, ahead, ms) in [
        (false, true, 0, 1_000),
        (false, true, 2, 3_000),
        (false, true, 15, 15_000),
        (false, false, 0, 250),
        (false, false, 2, 750),
        (false, false, 60, 15_000),
        (true, true, 32, 90),
        (true, true, 33, 150),
        (true, true, 331, 15_000),
    ] {
        let found = poll_after(ahead, None, foreign, listening).as_millis();
        assert_eq!(found, ms, "{foreign} {listening} {ahead}");
    }
}

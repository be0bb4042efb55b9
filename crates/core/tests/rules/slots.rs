//! Semaphores, one story each. A request names the number of slots.

use leasehold_core::Mode::{Exclusive, Shared};
use leasehold_core::{Reply, Step};

use crate::events::slots;
use crate::stage::{Stage, ahead, behind, fence, slot, woken};

#[test]
fn as_many_hold_as_there_are_slots() {
    let mut stage = Stage::new();
    for who in ["ann", "bob", "cid"] {
        fence(&stage.tries_in(slots(3), who));
    }
    assert!(matches!(stage.tries_in(slots(3), "dan"), Reply::Busy(_)));
    stage.waits_in(slots(3), "dan", 30_000);
    stage.waits_in(slots(3), "eve", 30_000);
    assert_eq!(woken(&stage.releases("bob", None)), ["dan"]);
    assert_eq!(stage.holders(), ["ann", "cid", "dan"]);
    // One slot is a mutex.
    let mut one = Stage::new();
    fence(&one.tries_in(slots(1), "ann"));
    assert!(matches!(one.tries_in(slots(1), "bob"), Reply::Busy(_)));
}

#[test]
fn slots_have_numbers_and_the_smallest_is_next() {
    let mut stage = Stage::new();
    for (who, number) in [("ann", 1), ("bob", 2), ("cid", 3)] {
        assert_eq!(slot(&stage.tries_in(slots(4), who)), number, "{who}");
    }
    for (leaves, comes, number) in [("bob", "dan", 2), ("ann", "eve", 1), ("cid", "fay", 3)] {
        stage.releases(leaves, None);
        assert_eq!(slot(&stage.tries_in(slots(4), comes)), number, "{comes}");
    }
    stage.releases("eve", None);
    stage.releases("dan", None);
    for (comes, number) in [("gus", 1), ("hal", 2), ("ida", 4)] {
        assert_eq!(slot(&stage.tries_in(slots(4), comes)), number, "{comes}");
    }
    // A retry and an extension have the same.
    assert_eq!(slot(&stage.tries_in(slots(4), "fay")), 3);
    assert_eq!(slot(&stage.extends("fay", 30_000)), 3);
    // So does the wake of a waiter.
    stage.waits_in(slots(4), "joe", 30_000);
    let [wake] = <[_; 1]>::try_from(stage.releases("hal", None).wakes).unwrap();
    assert_eq!(wake.slot, Some(2));
    let claimed = stage.extends("joe", 30_000);
    assert_eq!((slot(&claimed), Some(fence(&claimed))), (2, wake.fence));
}

#[test]
fn each_grant_of_a_slot_has_a_fence_of_its_own() {
    let mut stage = Stage::new();
    let of_ann = fence(&stage.tries_in(slots(2), "ann"));
    let of_bob = fence(&stage.tries_in(slots(2), "bob"));
    assert!(of_bob > of_ann);
    stage.releases("ann", None);
    let of_cid = fence(&stage.tries_in(slots(2), "cid"));
    assert!(of_cid > of_bob, "also of a slot with a smaller number");
    assert_eq!(fence(&stage.extends("bob", 30_000)), of_bob);
}

#[test]
fn a_larger_limit_counts_at_once() {
    let mut stage = Stage::new();
    for who in ["ann", "bob"] {
        fence(&stage.tries_in(slots(2), who));
    }
    assert!(matches!(stage.tries_in(slots(2), "cid"), Reply::Busy(_)));
    assert_eq!(slot(&stage.tries_in(slots(3), "dan")), 3);
}

#[test]
fn a_smaller_limit_waits() {
    let mut stage = Stage::new();
    for (who, ms) in [("ann", 900), ("bob", 500), ("cid", 700)] {
        stage.waits_in(slots(3), who, ms);
    }
    // It waits until fewer hold, and asks at each end.
    let refused = stage.waits_in(slots(2), "dan", 30_000).reply;
    assert_eq!(behind(&refused), ("bob".into(), 2, 501));
    // Nobody passes it, and nobody is thrown out.
    let refused = stage.waits_in(slots(4), "eve", 30_000).reply;
    assert_eq!(ahead(&refused).0, 1);
    stage.now_ms += 501;
    let refused = stage.waits_in(slots(2), "dan", 30_000).reply;
    assert_eq!(behind(&refused), ("cid".into(), 1, 200));
    let outcome = stage.releases("ann", None);
    assert_eq!(woken(&outcome), ["dan", "eve"]);
    let numbers = outcome.wakes.iter().map(|wake| wake.slot);
    assert_eq!(numbers.collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(stage.holders(), ["cid", "dan", "eve"]);
}

#[test]
fn slots_and_mutex_exclude_each_other() {
    let modes = [Exclusive, Shared, slots(2)];
    for (first, held) in modes.iter().enumerate() {
        for (second, asked) in modes.iter().enumerate() {
            let mut stage = Stage::new();
            fence(&stage.tries_in(*held, "ann"));
            let is_admitted = matches!(stage.tries_in(*asked, "bob"), Reply::Held(_));
            let is_one_kind = first == second && *held != Exclusive;
            assert_eq!(is_admitted, is_one_kind, "{asked} beside {held}");
        }
    }
}

#[test]
fn waiters_of_all_modes_stand_in_one_line() {
    let mut stage = Stage::new();
    fence(&stage.tries_in(Exclusive, "zoe"));
    for (mode, who) in [
        (slots(2), "ann"),
        (slots(2), "bob"),
        (slots(2), "cid"),
        (Shared, "dan"),
        (Shared, "eve"),
        (Exclusive, "fay"),
        (slots(1), "gus"),
        (slots(3), "hal"),
    ] {
        stage.waits_in(mode, who, 30_000);
    }
    let mut turns = Vec::new();
    while let Some(leaves) = stage.holders().first() {
        turns.push(stage.holders().join(" "));
        stage.releases(leaves, None);
    }
    assert_eq!(
        turns,
        [
            "zoe", "ann bob", "bob cid", "cid", "dan eve", "eve", "fay", "gus hal", "hal"
        ]
    );
}

#[test]
fn a_break_frees_the_slot_of_its_fence_only() {
    let mut stage = Stage::new();
    fence(&stage.tries_in(slots(3), "ann"));
    let of_bob = fence(&stage.tries_in(slots(3), "bob"));
    fence(&stage.tries_in(slots(3), "cid"));
    stage.waits_in(slots(3), "dan", 30_000);
    let outcome = stage.step(&Step::Break { fence: of_bob });
    assert_eq!(
        (&outcome.reply, woken(&outcome)),
        (&Reply::Released, vec!["dan".into()])
    );
    assert_eq!(outcome.wakes[0].slot, Some(2));
    assert_eq!(stage.holders(), ["ann", "cid", "dan"]);
    assert!(matches!(stage.breaks(of_bob), Reply::NotHeld(Some(_))));
}

#[test]
fn a_refusal_shows_the_slot_that_ends_next() {
    let mut stage = Stage::new();
    for (who, ms) in [("ann", 700), ("bob", 500), ("cid", 900)] {
        stage.waits_in(slots(3), who, ms);
    }
    let refused = stage.waits_in(slots(3), "dan", 30_000).reply;
    assert_eq!(behind(&refused), ("bob".into(), 2, 501));
    // A writer needs the end of all.
    let refused = stage.waits_in(Exclusive, "wes", 30_000).reply;
    assert_eq!(behind(&refused), ("cid".into(), 2, 911));
    let refused = stage.waits_in(Shared, "ray", 30_000).reply;
    assert_eq!(behind(&refused), ("cid".into(), 2, 921));
    assert_eq!(stage.holder().as_deref(), Some("cid"));
    // Behind a writer, a request for a slot waits for its end.
    let mut stage = Stage::new();
    fence(&stage.tries_in(Exclusive, "wes"));
    let refused = stage.waits_in(slots(3), "dan", 30_000).reply;
    assert_eq!(behind(&refused), ("wes".into(), 0, 1_000));
}

#[test]
fn a_holder_of_a_slot_that_is_gone_delays_no_other_slot() {
    let mut stage = Stage::new();
    stage.waits_in(slots(2), "gone", 5_000);
    stage.waits_in(slots(2), "ann", 30_000);
    stage.now_ms += 5_001;
    assert_eq!(slot(&stage.tries_in(slots(2), "bob")), 1);
    assert_eq!(slot(&stage.extends("ann", 30_000)), 2);
}

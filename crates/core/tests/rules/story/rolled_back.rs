//! A failover to a lagging replica: the store is as it was before, and the owner that was granted the lock since waits again.

use leasehold_core::Counter;

use super::*;

impl Stage {
    fn extends_under(&mut self, fence: Fence, who: &str) -> Reply {
        self.step(&Step::Extend {
            owner: owner(who),
            ttl: ttl(30_000),
            fence: Some(fence),
        })
        .reply
    }

    fn releases_under(&mut self, fence: Fence, who: &str, keep_ms: Option<u64>) -> Reply {
        self.step(&Step::Release {
            owner: owner(who),
            keep: keep_ms.map(ttl),
            fence: Some(fence),
        })
        .reply
    }

    /// The holder's note, as inspect shows it.
    fn is_held_under(&mut self, fence: Fence, who: &str) -> bool {
        let Reply::Seen(seen) = self.step(&Step::Inspect).reply else {
            unreachable!()
        };
        seen.is_held_under(&owner(who), fence)
    }
}

/// Ann held for 5 s when the replica was cut off. Bob waited, and was granted the lock since. Returns his fence.
fn failed_over() -> (Stage, Fence) {
    let mut stage = Stage::new();
    stage.acquires("ann", 5_000, false);
    stage.acquires("bob", 30_000, true);
    let replica = stage.world.clone();
    stage.now_ms += 1_000;
    stage.releases("ann", None);
    let fence = fence(&stage.extends("bob", 30_000));
    stage.world = replica;
    (stage, fence)
}

#[track_caller]
fn not_held_but_by(reply: Reply) -> Option<String> {
    match reply {
        Reply::NotHeld(holder) => holder.map(|holder| match holder.who {
            HolderIdentity::Owner(owner) => owner.note(),
            HolderIdentity::Foreign { kind, .. } => kind,
        }),
        other => panic!("not held, got {other:?}"),
    }
}

#[test]
fn demoted_holder_learns_at_release_that_it_waits_and_leaves() {
    let (mut stage, of_bob) = failed_over();
    assert_eq!(
        not_held_but_by(stage.extends_under(of_bob, "bob")).as_deref(),
        Some("ann")
    );
    assert_eq!(stage.queue(), ["bob"], "a refusal changes nothing");
    let reply = stage.releases_under(of_bob, "bob", None);
    assert_eq!(not_held_but_by(reply).as_deref(), Some("ann"));
    assert!(stage.queue().is_empty());
}

#[test]
fn regranted_owner_is_not_extended_under_its_old_fence() {
    let (mut stage, of_bob) = failed_over();
    stage.now_ms += 5_001;
    // Another client asks, and the store grants the lock to the waiter, bob.
    stage.acquires("cid", 30_000, true);
    assert_eq!(stage.holder().as_deref(), Some("bob"));
    let before = stage.world.clone();
    let reply = stage.extends_under(of_bob, "bob");
    assert_eq!(not_held_but_by(reply).as_deref(), Some("bob"));
    assert_eq!(stage.world, before, "a refusal changes nothing");
    // His release does not keep it either: it goes on to the next waiter.
    let reply = stage.releases_under(of_bob, "bob", Some(60_000));
    assert_eq!(not_held_but_by(reply).as_deref(), Some("cid"));
}

#[test]
fn release_under_an_old_fence_frees_the_newer_grant() {
    let (mut stage, of_bob) = failed_over();
    stage.now_ms += 5_001;
    // His own step advances the queue, where he is the first.
    let reply = stage.releases_under(of_bob, "bob", None);
    assert_eq!(not_held_but_by(reply), None);
    assert_eq!(stage.holder(), None);
}

#[test]
fn all_fences_of_a_stay_are_of_its_hold() {
    let mut stage = Stage::new();
    let first = fence(&stage.draws("ann", 64));
    let nth = |by| Fence::new(first.get() + by);
    for own in [0, 63] {
        assert_eq!(fence(&stage.extends_under(nth(own), "ann")), first);
    }
    for other in [first.get() - 1, first.get() + 64] {
        not_held_but_by(stage.extends_under(Fence::new(other), "ann"));
    }
    let reply = stage.releases_under(nth(63), "ann", None);
    assert_eq!(reply, Reply::Released);
}

#[test]
fn a_hold_outlives_the_loss_of_the_counter_and_keeps_its_fence() {
    let mut stage = Stage::new();
    let first = fence(&stage.acquires("ann", 30_000, false));
    stage.world.counter = Counter::default();
    for _ in 0..2 {
        assert_eq!(fence(&stage.extends_under(first, "ann")), first);
    }
    assert_eq!(stage.releases_under(first, "ann", None), Reply::Released);
    stage.now_ms += 1;
    assert!(fence(&stage.acquires("bob", 30_000, false)) > first);
}

#[test]
fn a_look_tells_by_which_grant_an_owner_holds() {
    let (mut stage, of_bob) = failed_over();
    assert!(!stage.is_held_under(of_bob, "bob"), "he only waits");
    stage.now_ms += 5_001;
    stage.acquires("cid", 30_000, true);
    assert!(!stage.is_held_under(of_bob, "bob"), "by a newer grant");
    let newer = fence(&stage.extends("bob", 30_000));
    assert!(stage.is_held_under(newer, "bob") && !stage.is_held_under(newer, "cid"));
}

//! Acquire, extend, expiry, release, break and inspect.

use leasehold_core::{Fence, LockName, Reply};

use super::peer::{Peer, above, busy, fence, not_held, number};
use super::worlds::World;
use super::{MS, SECOND, TTL, three, two};

pub(super) async fn one_holds_and_the_others_learn_who(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    world.advance(SECOND * 10);
    let refusals = [
        (busy(b.tries().await), MS * 250),
        (b.queues().await, SECOND),
    ];
    for (refusal, pause) in refusals {
        assert_eq!((number(&refusal.holder), refusal.ahead), (1, 0));
        assert_eq!(refusal.holder.fence, Some(first));
        assert_eq!(refusal.holder.held_for, Some(SECOND * 10));
        assert_eq!(refusal.holder.expires_in, Some(SECOND * 20));
        assert_eq!(refusal.poll_after, pause);
    }
}

pub(super) async fn a_refusal_says_when_it_was_given(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    let first = busy(b.tries().await).at_us;
    world.advance(SECOND * 2);
    assert_eq!(b.queues().await.at_us - first, 2_000_000);
}

pub(super) async fn names_do_not_touch_each_other(world: &impl World) {
    let (a, mut b) = two(world).await;
    b.name = LockName::new("report of {user}:43").unwrap();
    a.takes().await;
    b.takes().await;
    a.releases().await;
    assert_eq!(b.sees_holder().await, Some((2, TTL)));
}

pub(super) async fn only_the_holder_extends(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 10);
    assert_eq!(not_held(b.extends().await), Some(1), "a waiter");
    assert_eq!(not_held(c.extends().await), Some(1), "a stranger");
    assert_eq!(a.sees_holder().await, Some((1, SECOND * 20)));
    assert_eq!(a.sees_queue().await, [2]);
    fence(a.extends().await);
    assert_eq!(a.sees_holder().await, Some((1, TTL)));
}

pub(super) async fn an_extension_can_shorten(world: &impl World) {
    let a = Peer::of(world, 1).await;
    a.takes().await;
    let a = a.wanting(SECOND * 5);
    fence(a.extends().await);
    assert_eq!(a.sees_holder().await, Some((1, SECOND * 5)));
}

pub(super) async fn lease_counts_until_last_millisecond_and_is_not_retaken(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    world.advance(TTL);
    busy(b.tries().await);
    world.advance(MS);
    assert_eq!(not_held(a.extends().await), None);
    assert_eq!(a.sees_holder().await, None);
    assert_eq!(not_held(a.gives_back().await), None);
}

pub(super) async fn an_expired_lock_is_taken_over(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    world.advance(TTL + MS);
    let second = b.takes().await;
    assert!(second > first);
    assert_eq!(b.sees_holder().await, Some((2, TTL)));
    assert_eq!(not_held(a.extends().await), Some(2));
    assert_eq!(not_held(a.gives_back().await), Some(2));
    assert_eq!(number(&busy(a.tries().await).holder), 2);
    assert_eq!(a.sees_fence().await, Some(second));
}

pub(super) async fn a_release_by_a_stranger_changes_nothing(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    let before = a.sees().await;
    assert_eq!(not_held(c.gives_back().await), Some(1));
    assert_eq!(a.sees().await, before);
    b.is_told_nothing().await;
}

pub(super) async fn a_lock_can_be_kept_taken_after_its_release(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    b.queues().await;
    a.releases_after(SECOND * 10).await;
    a.releases_after(SECOND * 10).await;
    assert_eq!(b.sees_holder().await, Some((1, SECOND * 10)));
    b.is_told_nothing().await;
    world.advance(SECOND * 10);
    assert_eq!(number(&b.queues().await.holder), 1);
    world.advance(MS);
    b.takes().await;
}

pub(super) async fn a_kept_lock_can_be_given_back(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    a.releases_after(SECOND * 10).await;
    a.releases().await;
    b.takes().await;
}

pub(super) async fn a_kept_lock_is_still_extended_by_its_owner_and_by_no_other(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    a.releases_after(SECOND * 10).await;
    drop(a.store);
    // Another client with the same token, as in another process.
    let c = Peer::of(world, 1).await;
    assert_eq!(not_held(b.extends().await), Some(1));
    assert_eq!(fence(c.extends().await), first);
    assert_eq!(b.sees_holder().await, Some((1, TTL)));
    world.advance(TTL + MS);
    assert_eq!(not_held(c.extends().await), None, "never taken again");
    b.takes().await;
    assert_eq!(not_held(c.gives_back().await), Some(2));
}

pub(super) async fn a_break_needs_the_fence_of_the_holder(world: &impl World) {
    let (a, b, c) = three(world).await;
    let first = a.takes().await;
    a.releases().await;
    assert_eq!(not_held(c.breaks(first).await), None, "nothing to break");
    let second = a.takes().await;
    b.queues().await;
    assert_eq!(not_held(c.breaks(first).await), Some(1));
    assert_eq!(c.sees_holder().await, Some((1, TTL)));
    assert_eq!(c.breaks(second).await, Reply::Released);
    assert_eq!(not_held(a.extends().await), Some(2));
    fence(b.extends().await);
}

pub(super) async fn a_break_may_name_any_fence_of_the_block(world: &impl World) {
    let (a, b) = two(world).await;
    let a = a.drawing(64);
    for own in [0, 1, 40, 63] {
        world.advance(SECOND);
        let first = a.takes().await;
        for other in [Fence::new(first.get() - 1), above(first, 64)] {
            assert_eq!(not_held(b.breaks(other).await), Some(1));
        }
        assert_eq!(b.breaks(above(first, own)).await, Reply::Released);
        assert_eq!(not_held(a.extends().await), None);
    }
}

pub(super) async fn inspect_shows_everything_and_changes_nothing(world: &impl World) {
    let (a, b, c) = three(world).await;
    let nothing = c.sees().await;
    assert!(nothing.holder.is_none() && nothing.queue.is_empty());

    let first = a.takes().await;
    b.queues().await;
    world.advance(SECOND * 7);
    let seen = c.sees().await;
    let holder = seen.holder.clone().unwrap();
    assert_eq!(holder.fence, Some(first));
    assert_eq!(holder.held_for, Some(SECOND * 7));
    assert_eq!(holder.expires_in, Some(SECOND * 23));
    let [waiter] = seen.queue.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!((&waiter.owner, waiter.ttl.get()), (&b.owner, TTL));
    assert_eq!(waiter.seen_for, SECOND * 9);

    world.advance(SECOND * 24);
    assert!(c.sees().await.holder.is_none());
    assert_eq!(c.sees_queue().await, [2], "looking grants nothing");
    b.is_told_nothing().await;
}

pub(super) async fn the_index_shows_what_is_held(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    a.store.index(Some(a.name.clone())).await.unwrap();
    assert_eq!(b.store.index(None).await.unwrap(), [a.name.key()]);
    a.releases().await;
    assert!(b.store.index(None).await.unwrap().is_empty());
}

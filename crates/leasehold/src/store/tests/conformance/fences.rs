//! Fences only rise, whatever data is lost, and only one counter is stored for it.

use std::time::Duration;

use leasehold_core::{Block, Fence};

use super::peer::{Peer, above, busy, fence, held, not_held};
use super::worlds::World;
use super::{MS, SECOND, TTL, three, two};

pub(super) async fn fences_rise_over_releases_and_expiry(world: &impl World) {
    let (a, b) = two(world).await;
    let mut last = a.takes().await;
    for _ in 0..5 {
        a.releases().await;
        let released = b.takes().await;
        world.advance(TTL + MS);
        let expired = a.takes().await;
        assert!(last < released && released < expired);
        last = expired;
    }
}

pub(super) async fn fences_rise_while_the_clock_stands_still(world: &impl World) {
    let a = Peer::of(world, 1).await;
    let mut last = a.takes().await;
    for _ in 0..5 {
        a.releases().await;
        let next = a.takes().await;
        assert_eq!(next, above(last, 1));
        last = next;
    }
}

pub(super) async fn all_names_draw_from_one_counter(world: &impl World) {
    let (a, b, c) = three(world).await;
    let (b, c) = (b.about("another"), c.about("a third {one}"));
    let first = a.takes().await;
    assert_eq!(b.takes().await, above(first, 1));
    assert_eq!(c.takes().await, above(first, 2));
    b.releases().await;
    a.releases().await;
    assert_eq!(b.takes().await, above(first, 3));
    assert_eq!(a.takes().await, above(first, 4));
}

pub(super) async fn a_block_is_drawn_with_the_grant(world: &impl World) {
    let (mut a, b) = two(world).await;
    let b = b.about("another");
    let mut next = a.takes().await;
    a.releases().await;
    for fences in [1, 2, 17, 1_024] {
        next = above(next, 1);
        a = a.drawing(fences);
        let taken = held(a.tries().await);
        assert_eq!((taken.fence, taken.block.get()), (Some(next), fences));
        assert_eq!(held(a.extends().await), taken);
        // The first that is not in the block.
        next = above(next, fences);
        assert_eq!(b.takes().await, next);
        a.releases().await;
        b.releases().await;
    }
}

pub(super) async fn holder_of_block_is_known_by_fence_of_its_grant(world: &impl World) {
    let (a, b) = two(world).await;
    let a = a.drawing(64);
    let first = a.takes().await;
    for seconds in [5, 10] {
        world.advance(SECOND * 5);
        fence(a.extends().await);
        let (refusal, seen) = (busy(b.tries().await), b.sees().await);
        for holder in [refusal.holder, seen.holder.unwrap()] {
            assert_eq!(holder.fence, Some(first));
            assert_eq!(holder.held_for, Some(SECOND * seconds));
        }
    }
    a.releases().await;
    assert!(b.takes().await > above(first, 63));
    let holder = b.sees().await.holder.unwrap();
    assert_eq!(holder.held_for, Some(Duration::ZERO));
}

pub(super) async fn a_waiter_is_granted_the_block_it_asked_for_last(world: &impl World) {
    let (a, mut b, c) = three(world).await;
    let c = c.about("another");
    let first = a.takes().await;
    for fences in [64, 17] {
        b = b.drawing(fences);
        b.queues().await;
    }
    a.releases().await;
    let granted = held(b.extends().await);
    let second = above(first, 1);
    assert_eq!((granted.fence, granted.block.get()), (Some(second), 17));
    assert_eq!(c.takes().await, above(first, 18));
    let last = above(second, 16);
    assert_eq!(fence(b.renews(Some(last)).await), second);
}

pub(super) async fn fences_rise_over_the_loss_of_all_data(world: &impl World) {
    let (a, b) = two(world).await;
    let a = a.drawing(64);
    let first = a.takes().await;
    b.queues().await;
    world.advance(MS);
    world.forget_everything();
    let renewed = not_held(a.renews(Some(first)).await);
    assert_eq!(renewed, None, "it is lost, and said so");
    assert!(a.sees_queue().await.is_empty());
    assert!(b.takes().await > above(first, 63));
}

pub(super) async fn a_hold_keeps_its_fences_when_the_counter_is_lost(world: &impl World) {
    let (a, b, c) = three(world).await;
    let a = a.drawing(64);
    let taken = held(a.tries().await);
    let first = taken.fence.unwrap();
    world.advance(MS);
    world.set_counter(None);
    assert_eq!(a.sees_holder().await.unwrap().0, 1, "the lock is not lost");
    assert_eq!(a.sees_fence().await, Some(first));
    assert_eq!(held(a.extends().await), taken);
    let again = held(a.tries().await);
    assert_eq!(again, taken);
    b.queues().await;
    a.releases().await;
    let second = fence(b.extends().await);
    assert!(second > above(first, 63), "drawn by the clock");

    world.advance(MS);
    world.set_counter(None);
    b.releases().await;
    assert!(c.takes().await > second);
}

pub(super) async fn fences_go_on_from_a_counter_that_is_ahead_of_the_clock(world: &impl World) {
    let (a, b, c) = three(world).await;
    let ahead = above(a.takes().await, 1_000_000_000_000);
    world.set_counter(Some(ahead));
    a.releases().await;
    assert_eq!(a.takes().await, above(ahead, 1));
    world.advance(SECOND);
    b.queues().await;
    a.releases().await;
    assert_eq!(fence(b.extends().await), above(ahead, 2), "a waiter's, too");
    let c = c.about("another");
    assert_eq!(c.takes().await, above(ahead, 3));
}

pub(super) async fn a_counter_near_the_end_counts_as_lost(world: &impl World) {
    let a = Peer::of(world, 1).await.drawing(Block::MOST.get());
    let by_clock = a.takes().await;
    let last = Fence::new(Fence::MAX.get() - Block::MOST.get());
    a.releases().await;
    world.set_counter(Some(last));
    assert_eq!(a.takes().await, above(last, 1), "the last block there is");
    for nobodys in [above(last, 1), Fence::MAX] {
        a.releases().await;
        world.set_counter(Some(nobodys));
        world.advance(SECOND);
        let next = a.takes().await;
        assert!(next > above(by_clock, 1_023) && next < last, "{next}");
    }
}

pub(super) async fn nothing_but_the_counter_stays_behind(world: &impl World) {
    let (a, b, c) = three(world).await;
    let mut d = Peer::of(world, 4).await;
    for name in ["one", "two {of} them", "three"] {
        d = d.about(name);
        d.takes().await;
        assert_eq!(world.remains(), [name]);
        d.releases().await;
        assert_eq!(world.remains(), [""; 0], "after a release");
    }
    a.takes().await;
    b.queues().await;
    c.queues().await;
    c.releases().await;
    a.releases().await;
    fence(b.extends().await);
    b.releases().await;
    assert_eq!(world.remains(), [""; 0], "after the last waiter");

    let own = a.takes().await;
    b.queues().await;
    a.releases_after(SECOND).await;
    // The lease and the queue expire; the next look at the lock finds it free.
    world.advance(SECOND * 60 + MS);
    c.takes().await;
    c.releases().await;
    assert_eq!(world.remains(), [""; 0], "after all expired");
    let next = c.takes().await;
    assert!(next > own, "the counter goes on");
}

//! Fences only rise, whatever is lost.

use std::time::Duration;

use leasehold_core::{Fence, Reply, Ttl};

use super::worlds::{Peer, World, busy, fence, not_held};
use super::{MS, SECOND, TTL, two};

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
        assert!(next.get() >= last.get() + Fence::BLOCK);
        last = next;
    }
}

pub(super) async fn a_refill_is_above_all_before_and_below_all_after(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    let drawn = fence(a.draws_a_block().await);
    assert!(drawn.get() >= first.get() + Fence::REFILL * Fence::BLOCK);
    let again = fence(a.draws_a_block().await);
    assert!(again.get() >= drawn.get() + Fence::REFILL * Fence::BLOCK);
    assert_eq!(a.sees().await.fence, Some(again));
    not_held(b.draws_a_block().await);
    assert_eq!(a.sees().await.fence, Some(again), "only for the holder");
    a.releases().await;
    assert!(b.takes().await.get() >= again.get() + Fence::BLOCK);
}

pub(super) async fn who_draws_more_is_known_by_the_fence_of_its_grant(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    let mut last = first;
    for seconds in [5, 10] {
        world.advance(SECOND * 5);
        last = fence(a.draws_a_block().await);
        let (refusal, seen) = (busy(b.tries().await), b.sees().await);
        assert_eq!(seen.fence, Some(last));
        for holder in [refusal.holder, seen.holder.unwrap()] {
            assert_eq!(holder.fence, Some(first));
            assert_eq!(holder.held_for, Some(SECOND * seconds));
        }
        for retry in [a.tries().await, a.extends().await] {
            assert_eq!(fence(retry), first, "the same as before");
        }
    }
    a.releases().await;
    assert!(b.takes().await > last);
    let holder = b.sees().await.holder.unwrap();
    assert!(holder.fence > Some(last), "the next grant begins anew");
    assert_eq!(holder.held_for, Some(Duration::ZERO));
}

pub(super) async fn who_draws_more_is_broken_by_any_fence_it_has_had(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    a.releases().await;
    world.advance(MS);
    for choice in 0..4 {
        let first = a.takes().await.get();
        world.advance(MS);
        fence(a.draws_a_block().await);
        world.advance(MS);
        let last = fence(a.draws_a_block().await).get();
        for other in [first - 1, last + Fence::BLOCK] {
            assert_eq!(not_held(b.breaks(Fence::new(other)).await), Some(1));
        }
        let own = [first, first + 1, last - 1, last + Fence::BLOCK - 1][choice];
        assert_eq!(b.breaks(Fence::new(own)).await, Reply::Released);
        assert_eq!(not_held(a.extends().await), None);
        world.advance(SECOND);
    }
}

pub(super) async fn fences_rise_over_the_loss_of_all_data(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    world.advance(MS);
    world.forget_everything();
    assert_eq!(not_held(a.extends().await), None, "it is lost, and said so");
    assert!(a.sees_queue().await.is_empty());
    assert!(b.takes().await > first);
}

pub(super) async fn fences_rise_over_the_loss_of_the_fence(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    world.advance(MS);
    world.forget_fence(&a.name);
    assert_eq!(a.sees_holder().await.unwrap().0, 1, "the lock is not lost");
    let drawn = fence(a.extends().await);
    assert!(drawn > first);
    a.releases().await;
    let second = b.takes().await;
    assert!(second > drawn);

    world.advance(MS);
    world.forget_fence(&a.name);
    b.releases().await;
    assert!(a.takes().await > second);
}

pub(super) async fn a_fence_is_remembered_for_a_day(world: &impl World) {
    let a = Peer::of(world, 1).await;
    let first = a.takes().await;
    a.releases().await;
    world.advance(SECOND * 24 * 60 * 60);
    assert_eq!(a.sees().await.fence, Some(first));
    world.advance(MS);
    assert_eq!(a.sees().await.fence, None);
}

pub(super) async fn a_fence_is_remembered_as_long_as_its_lock_is_held(world: &impl World) {
    let a = Peer::of(world, 1).await.wanting(Ttl::MAX);
    let first = a.takes().await;
    for _ in 0..3 {
        world.advance(SECOND * 23 * 60 * 60);
        assert_eq!(fence(a.extends().await), first);
        assert_eq!(a.sees().await.fence, Some(first));
    }
}

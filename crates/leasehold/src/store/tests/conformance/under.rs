//! Steps that name the fence under which their owner believes to hold (C8).

use std::time::Duration;

use leasehold_core::{Fence, Reply, Step, Ttl};

use super::peer::{Peer, assert_granted, fence, held, not_held};
use super::worlds::World;
use super::{MS, SECOND, TTL, three, two};

impl Peer {
    /// Asks for a new deadline.
    pub(super) async fn renews(&self, fence: Option<Fence>) -> Reply {
        let (owner, ttl) = (self.owner.clone(), self.ttl);
        self.step(Step::Extend { owner, ttl, fence }).await
    }

    /// Releases the lock, at once or after `keep`.
    pub(super) async fn ends(&self, keep: Option<Duration>, fence: Option<Fence>) -> Reply {
        let (owner, keep) = (self.owner.clone(), keep.map(|keep| Ttl::new(keep).unwrap()));
        self.step(Step::Release { owner, keep, fence }).await
    }
}

/// The fence that is higher by this number.
pub(super) fn above(fence: Fence, by: u64) -> Fence {
    Fence::new(fence.get() + by)
}

pub(super) async fn a_hold_goes_on_by_any_fence_of_its_own(world: &impl World) {
    let (mut a, b) = two(world).await;
    for fences in [1, 64] {
        a = a.drawing(fences);
        let taken = held(a.tries().await);
        let first = taken.fence.unwrap();
        for own in [0, fences / 2, fences - 1] {
            world.advance(SECOND);
            let renewed = a.renews(Some(above(first, own))).await;
            assert_eq!(held(renewed), taken, "by the fence of its grant");
            assert_eq!(b.sees_holder().await, Some((1, TTL)));
        }
        let last = above(first, fences - 1);
        assert_eq!(a.ends(None, Some(last)).await, Reply::Released);
    }
    let first = a.takes().await;
    assert_eq!(a.ends(None, Some(first)).await, Reply::Released);
    b.takes().await;
}

pub(super) async fn a_holder_of_another_grant_is_not_extended_and_lets_go(world: &impl World) {
    let (a, b) = two(world).await;
    let a = a.drawing(64);
    let first = a.takes().await;
    a.releases().await;
    // As after a failover, the owner has another grant.
    let second = a.takes().await;
    world.advance(SECOND);
    for other in [first, above(first, 63), above(second, 64)] {
        assert_eq!(not_held(a.renews(Some(other)).await), Some(1));
    }
    assert_eq!(a.sees_holder().await, Some((1, SECOND * 29)));
    assert_eq!(a.sees_fence().await, Some(second));
    b.queues().await;
    let reply = a.ends(Some(SECOND * 10), Some(first)).await;
    // Nothing is kept.
    assert_granted(world, not_held(reply), 2);
}

pub(super) async fn release_by_waiter_that_believes_to_hold_says_not_held(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    let believed = Some(above(first, 1_000_000));
    assert_eq!(not_held(b.renews(believed).await), Some(1));
    assert_eq!(a.sees_queue().await, [2]);
    assert_eq!(not_held(b.ends(None, believed).await), Some(1));
    assert!(a.sees_queue().await.is_empty());
    assert_eq!(a.sees_holder().await, Some((1, TTL)));
}

pub(super) async fn hold_goes_on_by_own_fence_only_if_counter_is_lost(world: &impl World) {
    let (a, b) = two(world).await;
    let own = a.takes().await;
    world.advance(SECOND);
    world.set_counter(None);
    for _ in 0..2 {
        assert_eq!(not_held(a.renews(Some(above(own, 1))).await), Some(1));
        assert_eq!(fence(a.renews(Some(own)).await), own);
    }
    assert_eq!(a.ends(None, Some(own)).await, Reply::Released);
    assert!(b.takes().await > own);
}

pub(super) async fn release_with_fence_grants_to_next_waiter<W: World>(world: &W) {
    let (mut a, b, c) = three(world).await;
    for fences in [1, 64] {
        a = a.drawing(fences);
        let first = a.takes().await;
        b.queues().await;
        c.queues().await;
        let renewed = held(a.renews(Some(first)).await);
        assert_eq!(renewed.fence, Some(first));
        assert!(renewed.queued == 2 || !W::KNOWS_QUEUE);
        assert_eq!(a.ends(None, Some(first)).await, Reply::Released);
        assert!(b.sees_fence().await > Some(first) || !W::KNOWS_QUEUE);
        let second = fence(b.extends().await);
        c.releases().await;
        let alone = held(b.renews(Some(second)).await);
        assert_eq!((alone.fence, alone.queued), (Some(second), 0));
        assert_eq!(b.ends(None, Some(second)).await, Reply::Released);
        assert_eq!(a.sees_holder().await, None);
    }
    a.takes().await;
}

pub(super) async fn release_with_fence_may_keep_the_lock_taken(world: &impl World) {
    let (a, b) = two(world).await;
    let own = a.takes().await;
    for _ in 0..2 {
        let kept = a.ends(Some(SECOND * 10), Some(own)).await;
        assert_eq!(kept, Reply::Released);
        assert_eq!(b.sees_holder().await, Some((1, SECOND * 10)));
    }
    assert_eq!(fence(a.renews(Some(own)).await), own);
    assert_eq!(a.ends(None, Some(own)).await, Reply::Released);
    b.takes().await;
}

pub(super) async fn an_expired_hold_does_not_go_on_by_its_fence(world: &impl World) {
    let (a, b) = two(world).await;
    let own = a.takes().await;
    world.advance(TTL + MS);
    assert_eq!(not_held(a.renews(Some(own)).await), None);
    assert_eq!(not_held(a.ends(None, Some(own)).await), None);
    b.takes().await;
    assert_eq!(not_held(a.renews(Some(own)).await), Some(2));
    assert_eq!(not_held(a.ends(None, Some(own)).await), Some(2));
    assert_eq!(a.sees_holder().await, Some((2, TTL)));
}

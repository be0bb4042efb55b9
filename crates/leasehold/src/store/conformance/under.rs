//! Steps that name the fence under which their owner believes to hold (C8).

use std::time::Duration;

use leasehold_core::{Fence, Reply, Step, Ttl};

use super::worlds::{Peer, World, fence, not_held};
use super::{SECOND, TTL, two};

impl Peer {
    /// Asks for a new deadline, and for more fences if a `block` is wanted.
    pub(super) async fn renews(&self, fence: Option<Fence>, block: bool) -> Reply {
        let (owner, ttl) = (self.owner.clone(), self.ttl);
        self.step(Step::Extend {
            owner,
            ttl,
            block,
            fence,
        })
        .await
    }

    /// Lets go, or after `keep`.
    pub(super) async fn ends(&self, keep: Option<Duration>, fence: Option<Fence>) -> Reply {
        let (owner, keep) = (self.owner.clone(), keep.map(|keep| Ttl::new(keep).unwrap()));
        self.step(Step::Release { owner, keep, fence }).await
    }
}

fn above(fence: Fence, by: u64) -> Fence {
    Fence::new(fence.get() + by)
}

pub(super) async fn a_hold_goes_on_by_any_fence_of_its_own(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    let last = Fence::BLOCK - 1;
    for own in [0, last] {
        assert_eq!(fence(a.renews(Some(above(first, own)), false).await), first);
    }
    let more = fence(a.renews(Some(above(first, last)), true).await);
    for own in [above(first, 0), above(first, last), above(more, last)] {
        assert_eq!(fence(a.renews(Some(own), false).await), first);
    }
    assert_eq!(a.ends(None, Some(above(more, last))).await, Reply::Released);
    b.takes().await;
}

pub(super) async fn a_holder_of_another_grant_is_not_extended_and_lets_go(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    a.releases().await;
    // As after a failover: the same owner, another grant.
    let second = a.takes().await;
    world.advance(SECOND);
    for other in [first, above(second, Fence::BLOCK)] {
        for block in [false, true] {
            assert_eq!(not_held(a.renews(Some(other), block).await), Some(1));
        }
    }
    assert_eq!(a.sees_holder().await, Some((1, SECOND * 29)));
    assert_eq!(a.sees().await.fence, Some(second), "nothing was drawn");
    b.queues().await;
    let reply = a.ends(Some(SECOND * 10), Some(first)).await;
    assert_eq!(not_held(reply), Some(2), "nothing is kept");
}

pub(super) async fn a_waiter_that_believes_to_hold_is_told_and_leaves(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    let believed = Some(above(first, 1_000_000));
    assert_eq!(not_held(b.renews(believed, false).await), Some(1));
    assert_eq!(a.sees_queue().await, [2]);
    assert_eq!(not_held(b.ends(None, believed).await), Some(1));
    assert!(a.sees_queue().await.is_empty());
    assert_eq!(a.sees_holder().await, Some((1, TTL)));
}

pub(super) async fn a_hold_goes_on_by_its_own_fence_when_the_store_lost_that(world: &impl World) {
    let (a, b) = two(world).await;
    let own = a.takes().await;
    for later in [SECOND, Duration::ZERO] {
        world.advance(later);
        world.forget_fence(&a.name);
        for _ in 0..2 {
            assert_eq!(fence(a.renews(Some(own), false).await), own);
        }
    }
    assert!(a.sees().await.fence > Some(own));
    assert_eq!(a.ends(None, Some(own)).await, Reply::Released);
    assert!(b.takes().await > own);
}

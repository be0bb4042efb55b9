//! Fences only rise, whatever is lost.

use leasehold_core::Fence;

use super::worlds::{Peer, World, fence, not_held};
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

pub(super) async fn fences_rise_over_the_loss_of_all_data(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    world.advance(MS);
    world.forget_everything();
    assert_eq!(not_held(a.extends().await), None, "it is lost, and said so");
    assert_eq!(a.sees_queue().await, []);
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

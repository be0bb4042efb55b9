//! Every step may be sent twice (C5): a client cannot know whether the first one arrived.

use leasehold_core::{CLAIM_WINDOW, Reply};

use super::peer::{Peer, assert_granted, assert_repeated, fence, held, not_held};
use super::under::above;
use super::worlds::World;
use super::{SECOND, TTL, three, two};

pub(super) async fn acquire_may_be_repeated(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    world.advance(SECOND);
    assert_repeated(world, a.takes().await, first);
    assert_repeated(world, fence(a.tries().await), first);
    assert_eq!(a.sees_holder().await, Some((1, TTL)), "with a new deadline");
    b.queues().await;
    let queue = a.sees().await.queue;
    b.queues().await;
    assert_eq!(a.sees().await.queue, queue, "one place, not two");
}

pub(super) async fn a_repeat_draws_no_fences(world: &impl World) {
    let (a, b) = two(world).await;
    let (a, b) = (a.drawing(64), b.about("another"));
    let first = held(a.tries().await);
    for repeat in [a.tries().await, a.extends().await] {
        assert_eq!(held(repeat), first);
    }
    assert_eq!(b.takes().await, above(first.fence.unwrap(), 64));
    a.releases().await;
    not_held(a.gives_back().await);
    not_held(a.extends().await);
    b.releases().await;
    assert_eq!(b.takes().await, above(first.fence.unwrap(), 65));
}

pub(super) async fn a_repeated_acquire_after_the_release_is_settled_by_another(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    a.releases().await;
    // The repeat of a delayed request.
    a.takes().await;
    a.releases().await;
    assert_eq!(not_held(a.gives_back().await), None);
    b.takes().await;
}

pub(super) async fn extend_may_be_repeated(world: &impl World) {
    let a = Peer::of(world, 1).await;
    let first = a.takes().await;
    let once = a.extends().await;
    assert_eq!(a.extends().await, once);
    assert_eq!(fence(once), first);
}

pub(super) async fn release_may_be_repeated(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    a.releases().await;
    assert_granted(world, not_held(a.gives_back().await), 2);
    let granted = fence(b.extends().await);
    c.releases().await;
    assert_eq!(not_held(c.gives_back().await), Some(2));
    let seen = a.sees().await;
    assert_eq!(seen.holder.unwrap().fence, Some(granted));
    assert!(seen.queue.is_empty());
    assert_eq!(a.sees_holder().await, Some((2, TTL)));
}

pub(super) async fn break_may_be_repeated(world: &impl World) {
    let (a, b, c) = three(world).await;
    let first = a.takes().await;
    b.queues().await;
    assert_eq!(c.breaks(first).await, Reply::Released);
    assert_eq!(not_held(c.breaks(first).await), Some(2));
    assert_eq!(c.sees_holder().await, Some((2, CLAIM_WINDOW)));
}

//! Queueing, grants and wakes.

use leasehold_core::CLAIM_WINDOW;

use super::peer::{Peer, busy, fence, held, not_held, number};
use super::worlds::World;
use super::{MS, SECOND, TTL, three, two};

pub(super) async fn a_try_never_queues(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    busy(b.tries().await);
    assert!(a.sees_queue().await.is_empty());
    a.releases().await;
    assert_eq!(a.sees_holder().await, None);
    b.is_told_nothing().await;
}

pub(super) async fn waiters_are_served_in_the_order_they_came(world: &impl World) {
    let peers = [5, 3, 9, 1, 7].map(|number| Peer::of(world, number));
    let peers = futures_util::future::join_all(peers).await;
    let mut last = peers[0].takes().await;
    for (place, peer) in (0..).zip(&peers[1..]) {
        assert_eq!(peer.queues().await.ahead, place);
    }
    assert_eq!(peers[0].sees_queue().await, [3, 9, 1, 7]);
    for pair in peers.windows(2) {
        pair[0].releases().await;
        let next = fence(pair[1].extends().await);
        assert!(next > last);
        last = next;
    }
}

pub(super) async fn a_place_in_the_queue_is_kept_by_asking_again(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    let second = c.queues().await;
    assert_eq!((second.ahead, second.poll_after), (1, SECOND * 2));
    let deaf = c.queues_deaf().await;
    assert_eq!((deaf.ahead, deaf.poll_after), (1, MS * 500));
    world.advance(SECOND);
    assert_eq!(b.queues().await.ahead, 0);
    assert_eq!(c.queues().await.ahead, 1);
    assert_eq!(a.sees_queue().await, [2, 3]);
}

pub(super) async fn all_in_line_ask_when_the_lease_ends(world: &impl World) {
    let (a, b, c) = three(world).await;
    let a = a.wanting(MS * 300);
    a.takes().await;
    assert_eq!(b.queues().await.poll_after, MS * 301);
    assert_eq!(c.queues().await.poll_after, MS * 311);
    assert_eq!(c.queues_deaf().await.poll_after, MS * 311);
    world.advance(MS * 311);
    assert_eq!(number(&busy(c.tries().await).holder), 2);
}

pub(super) async fn leaving_the_queue_lets_others_move_up(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    b.releases().await;
    assert_eq!(a.sees_queue().await, [3]);
    assert_eq!(c.queues().await.ahead, 0);
    assert_eq!(b.queues().await.ahead, 1, "it comes back at the end");
}

pub(super) async fn a_release_by_a_waiter_leaves_the_holder_alone(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    b.queues().await;
    b.releases().await;
    assert_eq!(a.sees_holder().await, Some((1, TTL)));
    assert!(a.sees_queue().await.is_empty());
}

pub(super) async fn expired_lock_goes_to_waiter_and_not_to_newcomer(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 20);
    b.queues().await;
    world.advance(SECOND * 10 + MS);
    assert_eq!(number(&busy(c.tries().await).holder), 2);
}

pub(super) async fn a_waiter_that_fell_silent_is_passed_over(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 17);
    c.queues().await;
    a.releases().await;
    assert_eq!(c.sees_holder().await, Some((3, CLAIM_WINDOW)));
    assert!(c.sees_queue().await.is_empty());
}

pub(super) async fn release_grants_to_next_waiter_and_wakes_only_it(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    a.releases().await;
    b.is_told().await;
    fence(b.extends().await);
    for peer in [&a, &b, &c] {
        peer.is_told_nothing().await;
    }
    b.releases().await;
    c.is_told().await;
    for peer in [&a, &b, &c] {
        peer.is_told_nothing().await;
    }
}

pub(super) async fn a_wake_says_what_was_granted<W: World>(world: &W) {
    let (a, b, c) = three(world).await;
    let b = b.drawing(17);
    a.takes().await;
    let refused = b.queues().await;
    c.queues().await;
    a.releases().await;
    let wake = b.is_told().await;
    let granted = held(b.extends().await);
    match wake.fence {
        Some(told) => {
            assert_eq!((Some(told), wake.queued), (granted.fence, 1));
            assert_eq!((wake.block, granted.block), (b.block, b.block));
            assert!(wake.at_us >= refused.at_us);
        }
        None => assert!(!W::WAKES_SAY_ALL, "{wake:?}"),
    }
}

pub(super) async fn the_first_in_line_tells_the_holder_that_it_waits(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.tries().await;
    assert!(!a.is_wanted().await, "who asks once does not wait");
    let tells = a.store.capabilities().tells_wanted;
    for _ in 0..2 {
        b.queues().await;
        assert_eq!(a.is_wanted().await, tells);
    }
    c.queues().await;
    assert!(!a.is_wanted().await, "one who tells is enough");
    a.releases().await;
    c.queues_deaf().await;
    assert_eq!(b.is_wanted().await, tells, "a grant counts");
}

pub(super) async fn waiter_that_finds_the_lock_itself_is_not_woken(world: &impl World) {
    let (a, b) = two(world).await;
    let a = a.wanting(SECOND * 3);
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 3 + MS);
    b.takes().await;
    b.is_told_nothing().await;
}

pub(super) async fn a_lock_is_granted_to_one_only(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    a.releases().await;
    let granted = b.sees_fence().await.unwrap();
    for other in [&a, &c] {
        assert_eq!(number(&busy(other.tries().await).holder), 2);
        assert_eq!(not_held(other.extends().await), Some(2));
    }
    assert_eq!(c.queues().await.ahead, 0);
    assert_eq!(b.takes().await, granted, "asking claims the grant");
    assert_eq!(fence(b.extends().await), granted);
    assert_eq!(b.sees_holder().await, Some((2, TTL)));
}

pub(super) async fn a_grant_that_is_not_claimed_goes_to_the_next(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    a.releases().await;
    assert_eq!(a.sees_holder().await, Some((2, CLAIM_WINDOW)));
    world.advance(CLAIM_WINDOW);
    assert_eq!(c.queues().await.ahead, 0);
    world.advance(MS);
    assert_eq!(not_held(b.extends().await), Some(3), "any step moves on");
    fence(c.extends().await);
    assert_eq!(b.queues().await.ahead, 0, "from the end of the line");
}

pub(super) async fn a_grant_is_never_longer_than_the_lease_that_was_asked_for(world: &impl World) {
    let (a, b) = two(world).await;
    let b = b.wanting(MS * 2_500);
    a.takes().await;
    b.queues().await;
    a.releases().await;
    assert_eq!(a.sees_holder().await, Some((2, MS * 2_500)));
}

pub(super) async fn waiter_without_subscription_is_granted_all_the_same(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    b.queues_deaf().await;
    a.releases().await;
    fence(b.extends().await);
}

//! One suite of behaviours for every store, stamped out for each. A new store is one row at the end of this file. Must never
//! ask of one store what another does not promise.

mod worlds;

use std::time::Duration;

use leasehold_core::{CLAIM_WINDOW, LockName, Reply};

use self::worlds::{Peer, World, busy, fence, not_held, number};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

async fn two(world: &impl World) -> (Peer, Peer) {
    (Peer::of(world, 1).await, Peer::of(world, 2).await)
}

async fn three(world: &impl World) -> (Peer, Peer, Peer) {
    let (a, b) = two(world).await;
    (a, b, Peer::of(world, 3).await)
}

async fn one_holds_and_the_others_learn_who(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    world.advance(SECOND * 10);
    for refusal in [busy(b.tries().await), b.queues().await] {
        assert_eq!((number(&refusal.holder), refusal.ahead), (1, 0));
        assert_eq!(refusal.holder.fence, Some(first));
        assert_eq!(refusal.holder.held_for, Some(SECOND * 10));
        assert_eq!(refusal.holder.expires_in, Some(SECOND * 20));
        assert_eq!(refusal.poll_after, MS * 250);
    }
}

async fn names_do_not_touch_each_other(world: &impl World) {
    let (a, mut b) = two(world).await;
    b.name = LockName::new("report of {user}:43").unwrap();
    a.takes().await;
    b.takes().await;
    a.releases().await;
    assert_eq!(b.sees_holder().await, Some((2, TTL)));
}

async fn a_try_never_queues(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    busy(b.tries().await);
    assert_eq!(a.sees_queue().await, []);
    a.releases().await;
    assert_eq!(a.sees_holder().await, None);
    b.is_told_nothing().await;
}

async fn waiters_are_served_in_the_order_they_came(world: &impl World) {
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

async fn a_place_in_the_queue_is_kept_by_asking_again(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    let second = c.queues().await;
    assert_eq!((second.ahead, second.poll_after), (1, MS * 500));
    world.advance(SECOND);
    assert_eq!(b.queues().await.ahead, 0);
    assert_eq!(c.queues().await.ahead, 1);
    assert_eq!(a.sees_queue().await, [2, 3]);
}

async fn who_leaves_the_queue_lets_the_others_move_up(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    b.releases().await;
    assert_eq!(a.sees_queue().await, [3]);
    assert_eq!(c.queues().await.ahead, 0);
    assert_eq!(b.queues().await.ahead, 1, "it comes back at the end");
}

async fn only_the_holder_extends(world: &impl World) {
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

async fn an_extension_can_shorten(world: &impl World) {
    let a = Peer::of(world, 1).await;
    a.takes().await;
    let a = a.wanting(SECOND * 5);
    fence(a.extends().await);
    assert_eq!(a.sees_holder().await, Some((1, SECOND * 5)));
}

async fn a_lease_counts_until_its_last_millisecond_and_is_never_taken_again(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    world.advance(TTL);
    busy(b.tries().await);
    world.advance(MS);
    assert_eq!(not_held(a.extends().await), None);
    assert_eq!(a.sees_holder().await, None);
    assert_eq!(not_held(a.gives_back().await), None);
}

async fn an_expired_lock_is_taken_over(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    world.advance(TTL + MS);
    let second = b.takes().await;
    assert!(second > first);
    assert_eq!(b.sees_holder().await, Some((2, TTL)).filter(|_| false).or(b.sees_holder().await));
    assert_eq!(not_held(a.extends().await), Some(2));
    assert_eq!(not_held(a.gives_back().await), Some(2));
    assert_eq!(busy(a.tries().await).holder.fence, Some(second));
}

async fn an_expired_lock_goes_to_who_waits_and_not_to_who_comes_by(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 20);
    b.queues().await;
    world.advance(SECOND * 10 + MS);
    assert_eq!(number(&busy(c.tries().await).holder), 2);
}

async fn a_waiter_that_fell_silent_is_passed_over(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 16);
    c.queues().await;
    a.releases().await;
    assert_eq!(c.sees_holder().await, Some((3, CLAIM_WINDOW)));
    assert_eq!(c.sees_queue().await, []);
}

async fn a_release_by_a_stranger_changes_nothing(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    let before = a.sees().await;
    assert_eq!(not_held(c.gives_back().await), Some(1));
    assert_eq!(a.sees().await, before);
    b.is_told_nothing().await;
}

async fn a_release_by_a_waiter_leaves_the_holder_alone(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    b.queues().await;
    b.releases().await;
    assert_eq!(a.sees_holder().await, Some((1, TTL)));
    assert_eq!(a.sees_queue().await, []);
}

async fn a_release_hands_over_and_tells_the_next_and_nobody_else(world: &impl World) {
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

async fn who_finds_the_lock_itself_is_not_told_as_well(world: &impl World) {
    let (a, b) = two(world).await;
    let a = a.wanting(SECOND * 3);
    a.takes().await;
    b.queues().await;
    world.advance(SECOND * 3 + MS);
    b.takes().await;
    b.is_told_nothing().await;
}

async fn a_lock_is_granted_to_one_only(world: &impl World) {
    let (a, b, c) = three(world).await;
    a.takes().await;
    b.queues().await;
    c.queues().await;
    a.releases().await;
    let granted = b.sees().await.fence.unwrap();
    for other in [&a, &c] {
        assert_eq!(number(&busy(other.tries().await).holder), 2);
        assert_eq!(not_held(other.extends().await), Some(2));
    }
    assert_eq!(c.queues().await.ahead, 0);
    assert_eq!(b.takes().await, granted, "asking claims the grant");
    assert_eq!(fence(b.extends().await), granted);
    assert_eq!(b.sees_holder().await, Some((2, TTL)));
}

async fn a_grant_that_is_not_claimed_goes_to_the_next(world: &impl World) {
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

async fn a_grant_is_never_longer_than_the_lease_that_was_asked_for(world: &impl World) {
    let (a, b) = two(world).await;
    let b = b.wanting(MS * 2_500);
    a.takes().await;
    b.queues().await;
    a.releases().await;
    assert_eq!(a.sees_holder().await, Some((2, MS * 2_500)));
}

async fn who_cannot_be_told_is_granted_all_the_same(world: &impl World) {
    let (a, b) = two(world).await;
    a.takes().await;
    b.queues_deaf().await;
    a.releases().await;
    fence(b.extends().await);
}

async fn a_break_needs_the_fence_of_the_holder(world: &impl World) {
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

async fn inspect_shows_everything_and_changes_nothing(world: &impl World) {
    let (a, b, c) = three(world).await;
    let nothing = c.sees().await;
    assert_eq!((nothing.holder, nothing.fence), (None, None));
    assert!(nothing.queue.is_empty());

    let first = a.takes().await;
    b.queues().await;
    world.advance(SECOND * 7);
    let seen = c.sees().await;
    let holder = seen.holder.clone().unwrap();
    assert_eq!((seen.fence, holder.fence), (Some(first), Some(first)));
    assert_eq!(holder.held_for, Some(SECOND * 7));
    assert_eq!(holder.expires_in, Some(SECOND * 23));
    let [waiter] = seen.queue.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!((&waiter.owner, waiter.ttl.get()), (&b.owner, TTL));
    assert_eq!(waiter.seen_for, MS * 8_250);

    world.advance(SECOND * 24);
    let seen = c.sees().await;
    assert_eq!((seen.holder, seen.fence), (None, Some(first)));
    assert_eq!(c.sees_queue().await, [2], "looking grants nothing");
    b.is_told_nothing().await;
}

async fn fences_rise_over_releases_and_expiry(world: &impl World) {
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

async fn fences_rise_while_the_clock_stands_still(world: &impl World) {
    let a = Peer::of(world, 1).await;
    let mut last = a.takes().await;
    for _ in 0..5 {
        a.releases().await;
        let next = a.takes().await;
        assert!(next.get() >= last.get() + leasehold_core::Fence::BLOCK);
        last = next;
    }
}

async fn fences_rise_over_the_loss_of_all_data(world: &impl World) {
    let (a, b) = two(world).await;
    let first = a.takes().await;
    b.queues().await;
    world.advance(MS);
    world.forget_everything();
    assert_eq!(not_held(a.extends().await), None, "it is lost, and said so");
    assert_eq!(a.sees_queue().await, []);
    assert!(b.takes().await > first);
}

async fn fences_rise_over_the_loss_of_the_fence(world: &impl World) {
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

async fn a_fence_is_remembered_for_a_day(world: &impl World) {
    let a = Peer::of(world, 1).await;
    let first = a.takes().await;
    a.releases().await;
    world.advance(SECOND * 24 * 60 * 60);
    assert_eq!(a.sees().await.fence, Some(first));
    world.advance(MS);
    assert_eq!(a.sees().await.fence, None);
}

//! The data that a store keeps of a lock, and the notices that it sends.

use leasehold_core::{CLAIM_WINDOW, Fence, LockName, Reply};

use super::peer::{Peer, busy, fence, held, not_held, number};
use super::worlds::World;
use super::{MS, SECOND, TTL};

async fn two(world: &impl World) -> (Peer, Peer) {
    (Peer::of(world, 1).await, Peer::of(world, 2).await)
}

async fn three(world: &impl World) -> (Peer, Peer, Peer) {
    let (a, b) = two(world).await;
    (a, b, Peer::of(world, 3).await)
}

/// The fence that is higher by this number.
fn above(fence: Fence, by: u64) -> Fence {
    Fence::new(fence.get() + by)
}

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
    let tells = a.store.tells_wanted();
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

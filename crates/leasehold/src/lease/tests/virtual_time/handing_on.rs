//! The lock inside one client: handed on, kept idle, renewed for the next task, and lost.

use leasehold_core::{HAND_OVER_FOR, HAND_OVERS};

use super::*;
use crate::lease::hold::{Hold, Start};

/// Starts this many tasks. Each is in the queue before the next one starts.
pub(super) async fn queue<K: Kind>(lock: &Lock<K>, count: usize) -> Vec<JoinHandle<Lease<K>>> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(in_line(lock.clone()));
        tokio::task::yield_now().await;
    }
    tasks
}

/// Makes the next lease in the same client, so that a test can hand it on later.
pub(super) fn made_before(scene: &Scene, lease: &Lease) -> Arc<Hold> {
    let before = &lease.hold;
    let start = Start {
        name: before.name.clone(),
        owner: before.owner.clone(),
        fence: before.fence,
        grant: before.grant,
        asked_at: before.asked_at,
        until: before.deadline(),
        unsettled_until: None,
        max_hold: None,
        linger: Duration::ZERO,
        auto_renew: true,
        ttl: before.ttl,
        lasts: before.ttl,
        mode: before.mode,
        slot: before.slot,
        stay: None,
    };
    Arc::new(Hold::new(scene.clock.clone(), start, scene.clock.now()))
}

/// Returns a lease whose grant drew fences for all tasks of the queue, and the tasks that wait behind it.
pub(super) async fn stay(mutex: &crate::Mutex, waiting: usize) -> (Lease, Vec<JoinHandle<Lease>>) {
    let first = mutex.acquire().await.unwrap();
    let mut tasks = queue(mutex, waiting + 1).await;
    first.release().await.unwrap();
    let next = tasks.remove(0).await.unwrap();
    (next, tasks)
}

#[tokio::test(start_paused = true)]
async fn lock_is_handed_on_16_times_while_another_client_waits() {
    let scene = Scene::begin();
    let (first, mut tasks) = stay(&scene.mutex(), HAND_OVERS as usize + 1).await;
    let theirs = in_line(scene.other.mutex("m").ttl(TTL));
    tokio::task::yield_now().await;
    let mut last = first.fence();
    let late = tasks.pop().unwrap();
    first.release().await.unwrap();
    for task in tasks {
        let lease = task.await.unwrap();
        assert!(!theirs.is_finished());
        assert_eq!(lease.fence().get(), last.get() + 1);
        last = lease.fence();
        lease.release().await.unwrap();
    }
    assert!(!late.is_finished(), "the other client's turn");
    let theirs = theirs.await.unwrap();
    assert!(theirs.fence() > last);
    let last = theirs.fence();
    theirs.release().await.unwrap();
    assert!(late.await.unwrap().fence() > last);
}

#[tokio::test(start_paused = true)]
async fn or_for_fifty_milliseconds() {
    for (held, handed_on) in [(HAND_OVER_FOR - MS, true), (HAND_OVER_FOR, false)] {
        let scene = Scene::begin();
        let (first, mut tasks) = stay(&scene.mutex(), 1).await;
        let theirs = in_line(scene.other.mutex("m").ttl(TTL));
        tokio::task::yield_now().await;
        let mine = tasks.pop().unwrap();
        sleep(held).await;
        first.release().await.unwrap();
        tokio::task::yield_now().await;
        sleep(MS / 2).await;
        assert_eq!(
            (mine.is_finished(), theirs.is_finished()),
            (handed_on, !handed_on)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn fences_do_not_run_out_and_cost_a_round_trip_for_a_thousand() {
    let scene = Scene::begin();
    let (mut lease, mut tasks) = stay(&scene.mutex(), 1).await;
    for _ in 0..4_000 {
        tasks.extend(queue(&scene.mutex(), 1).await);
        let last = lease.fence();
        lease.release().await.unwrap();
        lease = tasks.remove(0).await.unwrap();
        assert!(lease.fence() > last);
    }
    let drawn = |sent: &Sent| match &sent.step {
        Step::Acquire { block, .. } => block.get(),
        other => panic!("{other:?}"),
    };
    let drawn: Vec<_> = scene.sent("acquire").iter().map(drawn).collect();
    assert_eq!(drawn, [1, 8, 32, 128, 512, 1_024, 1_024, 1_024, 1_024]);
    assert_eq!(scene.sent("release").len(), drawn.len() - 1);
    assert_eq!(scene.sent("extend").len(), 0);
}

/// The client sends the release of the used block and the request for the next one together.
#[tokio::test(start_paused = true)]
async fn a_block_that_is_used_up_costs_one_flight() {
    let scene = Scene::begin();
    let (first, _) = scene.lease().await;
    let next = queue(&scene.mutex(), 1).await.pop().unwrap();
    scene.plan(|_| Fate::CarryOutAfter(SECOND));
    let released = scene.clock.now();
    drop(first);
    tokio::task::yield_now().await;
    assert_eq!(scene.steps(), 3, "both are on their way");
    drop(next.await.unwrap());
    assert_eq!(scene.since(released), SECOND);
}

/// A waiter of another client gets the lock before a client that has used up its fences.
#[tokio::test(start_paused = true)]
async fn who_waits_elsewhere_comes_before_the_next_block() {
    let scene = Scene::begin();
    let (first, _) = scene.lease().await;
    let theirs = in_line(scene.other.mutex("m").ttl(TTL));
    tokio::task::yield_now().await;
    let mine = queue(&scene.mutex(), 3).await;
    let mut last = first.fence();
    first.release().await.unwrap();
    let theirs = theirs.await.unwrap();
    assert!(theirs.fence() > last && !mine[0].is_finished());
    last = theirs.fence();
    theirs.release().await.unwrap();
    for task in mine {
        let lease = task.await.unwrap();
        assert!(lease.fence() > last);
        last = lease.fence();
        lease.release().await.unwrap();
    }
    // The store grants a waiting client fences for its whole queue.
    assert_eq!(
        (scene.sent("acquire").len(), scene.sent("release").len()),
        (2, 2)
    );
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn any_fence_of_the_stay_breaks_it_and_others_see_the_first() {
    for choice in [0, 40, 100, 200] {
        let scene = Scene::begin();
        let (mut lease, mut tasks) = stay(&scene.mutex(), 51).await;
        let mut fences = vec![lease.fence()];
        for _ in 0..200 {
            tasks.extend(queue(&scene.mutex(), 1).await);
            lease.release().await.unwrap();
            lease = tasks.remove(0).await.unwrap();
            fences.push(lease.fence());
        }
        assert_eq!(scene.sent("acquire").len(), 2, "all of one block");
        let seen = scene.other.inspect("m").await.unwrap();
        assert_eq!(seen.holder.unwrap().fence, Some(fences[0]));
        assert!(scene.other.break_lock("m", fences[choice]).await.unwrap());
        tasks.iter().for_each(JoinHandle::abort);
        tokio::task::yield_now().await;
        cause(lease.release().await.unwrap_err());
    }
}

#[tokio::test(start_paused = true)]
async fn other_terms_are_asked_of_the_store() {
    let scene = Scene::begin();
    for other in [scene.mutex().ttl(TTL * 2), scene.mutex().note("other")] {
        let before = scene.steps();
        let (first, _) = scene.lease().await;
        let owner = first.owner().clone();
        let next = queue(&other, 1).await.pop().unwrap();
        first.release().await.unwrap();
        let next = next.await.unwrap();
        assert_ne!(*next.owner(), owner);
        next.release().await.unwrap();
        assert_eq!(scene.steps() - before, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_lock_is_taken_without_a_step_and_released_in_time() {
    let scene = Scene::begin();
    let mutex = scene.mutex().linger(TTL * 2);
    mutex.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(scene.steps(), 1);
    sleep(TTL + SECOND).await;
    assert!(!scene.is_free().await, "renewed while it is idle");
    let steps = scene.steps();
    let lease = mutex.acquire().await.unwrap();
    assert!(lease.valid_for() > TTL / 2);
    assert!(scene.sent("acquire").len() == 1 && scene.sent("release").is_empty());
    let released = scene.clock.now();
    lease.release().await.unwrap();
    assert_eq!(scene.steps(), steps);
    sleep(TTL * 2 - MS).await;
    assert!(!scene.is_free().await);
    sleep(MS * 2).await;
    assert!(scene.is_free().await, "{:?}", scene.since(released));
    // The linger time starts anew at each release.
    mutex.acquire().await.unwrap().release().await.unwrap();
    sleep(TTL).await;
    mutex.acquire().await.unwrap().release().await.unwrap();
    sleep(TTL * 2 + MS).await;
    assert!(scene.is_free().await);
    // It also starts anew if the lock was in use when an earlier linger time ended.
    mutex.acquire().await.unwrap().release().await.unwrap();
    let lease = mutex.acquire().await.unwrap();
    sleep(TTL * 3).await;
    lease.release().await.unwrap();
    sleep(TTL * 2 + MS).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn an_idle_lock_is_given_up_when_another_client_wants_it() {
    let scene = Scene::begin();
    let mutex = scene.mutex().linger(TTL);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let asked = scene.clock.now();
    let theirs = scene.taken_by_another().await;
    assert_eq!(scene.since(asked), Duration::ZERO);
    theirs.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_lost_while_idle_is_asked_for() {
    let scene = Scene::begin();
    let mutex = scene.mutex().linger(TTL * 4);
    let first = mutex.acquire().await.unwrap();
    let (owner, fence) = (first.owner().clone(), first.fence());
    first.release().await.unwrap();
    assert!(scene.other.break_lock("m", fence).await.unwrap());
    sleep(TTL / 2).await;
    let lease = mutex.acquire().await.unwrap();
    assert!(*lease.owner() != owner && lease.fence() > fence);
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_lease_that_is_lost_gets_the_lock_in_order() {
    let scene = Scene::begin();
    let (first, _) = scene.lease().await;
    let tasks = queue(&scene.mutex(), 3).await;
    assert!(scene.other.break_lock("m", first.fence()).await.unwrap());
    let mut last = first.fence();
    first.lost().await;
    for task in tasks {
        let lease = task.await.unwrap();
        assert!(lease.fence() > last, "in order");
        last = lease.fence();
        lease.release().await.unwrap();
    }
    cause(first.release().await.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn who_went_away_is_passed_over_and_who_asks_once_is_told() {
    let scene = Scene::begin();
    let (first, _) = scene.lease().await;
    let tasks = queue(&scene.mutex(), 3).await;
    tasks[0].abort();
    tokio::task::yield_now().await;
    assert!(scene.mutex().try_acquire().await.unwrap().is_none());
    match scene.mutex().acquire_within(SECOND).await.unwrap_err() {
        Error::Timeout(timeout) => {
            assert_eq!((timeout.waited, timeout.ahead), (SECOND, 2));
            assert_eq!(timeout.holder.unwrap().fence, Some(first.fence()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.steps(), 1, "the store sees none of it");
    let fence = first.fence();
    first.release().await.unwrap();
    let mut fences = vec![fence.get()];
    for task in tasks.into_iter().skip(1) {
        fences.push(task.await.unwrap().fence().get());
    }
    assert!(fences[0] < fences[1]);
    assert_eq!(fences[2], fences[1] + 1, "none was lost");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_handed_on_has_half_its_time_or_is_renewed() {
    for (held, renewals) in [(TTL / 3, 0), (TTL * 3 / 5, 1)] {
        let scene = Scene::begin();
        let mutex = scene.mutex().auto_renew(false);
        let (second, mut tasks) = stay(&mutex, 1).await;
        let sent = scene.sent("extend").len();
        sleep(held).await;
        let third = tasks.pop().unwrap();
        second.run(async |_| Ok::<_, Error>(())).await.unwrap();
        let third = third.await.unwrap();
        sleep(MS).await;
        assert_eq!(scene.sent("extend").len() - sent, renewals, "{held:?}");
        assert!(third.valid_for() > TTL / 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_to_be_lost_before_it_was_handed_on_stays_so() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let next = made_before(&scene, &lease);
    // The hand-over is late: the client has renewed the lease before, and the deadline of the next one has passed.
    sleep(TTL).await;
    assert!(!lease.is_lost() && next.loss().is_some());
    let engine = &scene.client.engine;
    engine.hands_on(&next);
    sleep(SECOND).await;
    assert!(next.loss().is_some());
    assert_eq!(engine.leases(), 0, "it is not renewed");
    drop(lease);
    sleep(SECOND).await;
    assert!(scene.is_free().await);
}

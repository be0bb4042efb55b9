//! Requests and messages that overtake each other, or arrive after the client has changed its state.

use super::*;
use crate::lease::keeper::AT_ONCE;

/// A wake grants the lock to a waiter while its poll is on its way. The waiter releases the lock before the poll arrives.
async fn overtaken(scene: &Scene) {
    let held = scene.taken_by_another().await;
    scene.next("acquire", Fate::Pass);
    let waiting = in_line(scene.mutex());
    sleep(MS * 500).await;
    scene.each("acquire", || Fate::CarryOutAfter(SECOND * 2));
    sleep(SECOND).await;
    assert_eq!(scene.sent("acquire").len(), 2, "it has asked again");
    held.release().await.unwrap();
    let lease = waiting.await.unwrap();
    lease.release().await.unwrap();
    assert!(scene.is_free().await);
    scene.all_goes_well();
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_takes_the_lock_again_is_undone() {
    let scene = Scene::begin();
    overtaken(&scene).await;
    sleep(SECOND * 3).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_queues_its_owner_again_is_undone() {
    let scene = Scene::begin();
    overtaken(&scene).await;
    let theirs = scene.taken_by_another().await;
    sleep(SECOND * 3).await;
    let seen = scene.other.inspect("m").await.unwrap();
    assert!(seen.queue.is_empty(), "{:?}", seen.queue);
    theirs.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_the_undoing_overtook_is_no_loss() {
    let scene = Scene::begin();
    let held = scene.taken_by_another().await;
    let waiting = in_line(scene.mutex());
    sleep(MS * 500).await;
    scene.each("acquire", || Fate::CarryOutAfter(SECOND));
    sleep(SECOND).await;
    held.release().await.unwrap();
    let lease = waiting.await.unwrap();
    sleep(MS * 400).await;
    // The poll finds that its owner still holds the lock. The client undoes the poll while the release is on its way.
    scene.next("release", Fate::CarryOutAfter(MS * 500));
    lease.release().await.unwrap();
    assert_eq!(scene.sent("release").len(), 2);
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn what_is_late_does_not_free_a_lock_that_is_kept() {
    let scene = Scene::begin();
    let held = scene.taken_by_another().await;
    let waiting = in_line(scene.mutex());
    sleep(MS * 500).await;
    scene.each("acquire", || Fate::AnswerAfter(SECOND * 2));
    sleep(SECOND).await;
    held.release().await.unwrap();
    let lease = waiting.await.unwrap();
    lease.release_after(SECOND * 10).await.unwrap();
    sleep(SECOND * 8).await;
    assert!(!scene.is_free().await);
    sleep(SECOND * 3).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn unwanted_lock_is_undone_until_confirmed() {
    let scene = Scene::begin();
    scene.each("acquire", || Fate::Vanish);
    let (first, second) = (scene.mutex(), scene.mutex().ttl(SECOND * 20));
    let limit = MS * 300;
    let gone = async { first.acquire_within(limit).await.unwrap_err() };
    let stays = tokio::runtime::Handle::current().spawn(async move {
        sleep(MS).await;
        second.acquire().await
    });
    store_error(gone.await);
    let lying_about = scene.sent("acquire").remove(0);
    scene.each("release", || Fate::Refuse);
    sleep(SECOND).await;
    scene.all_goes_well();
    let lease = tokio::time::timeout(SECOND * 2, stays).await.unwrap();
    lease.unwrap().unwrap().release().await.unwrap();
    sleep(SECOND).await;
    assert!(scene.is_free().await);
    scene.arrives_late(&lying_about);
    sleep(SECOND * 2).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_reports_unanswering_store_at_once() {
    let scene = Scene::begin();
    let held = scene.taken_by_another().await;
    let waiting = in_line(scene.mutex());
    sleep(MS * 500).await;
    scene.plan(|_| Fate::Refuse);
    sleep(SECOND).await;
    let asked = scene.clock.now();
    let failed = store_error(scene.mutex().try_acquire().await.unwrap_err());
    assert_eq!(failed.kind, StoreErrorKind::Unavailable);
    assert!(scene.since(asked) < SECOND * 3, "{:?}", scene.since(asked));
    scene.all_goes_well();
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lease_extended_while_queued_is_renewed_once() {
    let scene = Scene::begin();
    let mut leases = Vec::new();
    for number in 0..=AT_ONCE {
        let mutex = scene.client.mutex(format!("m{number:03}")).ttl(TTL);
        leases.push(mutex.acquire().await.unwrap());
    }
    let last = leases.last().unwrap();
    let name = scene.sent("acquire").pop().unwrap().name;
    let owner = last.owner().clone();
    scene.plan(move |step| match step {
        Step::Extend { owner: of, .. } if *of == owner => Fate::Hang,
        Step::Extend { .. } => Fate::AnswerAfter(SECOND * 3),
        _ => Fate::Pass,
    });
    sleep(SECOND * 11).await;
    drop(last.extend(TTL).now_or_never());
    sleep(SECOND * 4).await;
    let renewals = scene.sent("extend");
    let renewals = renewals.iter().filter(|sent| sent.name == name).count();
    assert_eq!(renewals, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_waited_for_is_handed_on_like_any_other() {
    // Tasks that came after the client's first request are counted when the client asks again.
    for (asks_again, times) in [(true, 1), (false, 2)] {
        let scene = Scene::begin();
        let held = scene.taken_by_another().await;
        let mut tasks = Vec::new();
        for _ in 0..3 {
            tasks.push(in_line(scene.mutex()));
            tokio::task::yield_now().await;
        }
        if asks_again {
            sleep(SECOND + MS).await;
        }
        held.release().await.unwrap();
        let asked = scene.sent("acquire").len();
        for task in tasks {
            task.await.unwrap().release().await.unwrap();
        }
        assert_eq!(
            (scene.sent("acquire").len(), scene.sent("release").len()),
            (asked + times - 1, times)
        );
    }
}

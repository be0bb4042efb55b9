//! A failover to a replica that lags. The store has its old state again, in which a later holder is still a waiter.

use leasehold_core::{Counter, World};

use super::handing_on::stay;
use super::*;

/// Another client held the lock for `theirs`, and this client waited, when the replica was cut off. Since then, this client got the
/// lock. Returns its lease after the failover.
async fn failed_over(scene: &Scene, theirs: Duration) -> Lease {
    let before = scene.other.mutex("m").ttl(theirs).auto_renew(false);
    let before = before.acquire().await.unwrap();
    let waiting = in_line(scene.mutex());
    sleep(MS * 100).await;
    let replica: World = scene.memory.meddle(|world| world.clone());
    before.release().await.unwrap();
    let lease = waiting.await.unwrap();
    // Within this time, the client renews the lease to its whole TTL.
    sleep(SECOND * 2).await;
    scene.memory.meddle(|world| *world = replica);
    lease
}

#[tokio::test(start_paused = true)]
async fn who_stands_in_line_again_is_told_at_its_release_and_leaves() {
    let scene = Scene::begin();
    let lease = failed_over(&scene, TTL).await;
    assert_eq!(scene.other.inspect("m").await.unwrap().queue.len(), 1);
    let lost = cause(lease.release().await.unwrap_err());
    assert!(matches!(lost, LossCause::NotHeld(Some(_))), "{lost}");
    assert!(scene.other.inspect("m").await.unwrap().queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_is_granted_the_lock_again_learns_of_it_at_its_renewal() {
    let scene = Scene::begin();
    let lease = failed_over(&scene, SECOND * 4).await;
    let fence = lease.fence();
    sleep(SECOND * 3).await;
    // The request of another client makes the store grant the lock to the first waiter.
    let tried = scene.other.mutex("m").try_acquire().await.unwrap();
    let seen = scene.other.inspect("m").await.unwrap();
    assert!(tried.is_none() && seen.holder.unwrap().fence > Some(fence));
    let lost = cause(lease.extend(TTL).await.unwrap_err());
    assert!(matches!(lost, LossCause::NotHeld(None)), "{lost}");
    sleep(MS).await;
    assert!(scene.is_free().await, "what nobody has is given back");
}

/// The store knows each lease of a stay by the fence of the grant, however many leases there were.
#[tokio::test(start_paused = true)]
async fn a_stay_names_the_fence_of_its_grant() {
    let scene = Scene::begin();
    let (mut lease, mut tasks) = stay(&scene.mutex(), 51).await;
    let (first, before) = (lease.fence(), scene.sent("release").len());
    for _ in 0..200 {
        tasks.push(in_line(scene.mutex()));
        sleep(MS).await;
        lease.release().await.unwrap();
        lease = tasks.remove(0).await.unwrap();
    }
    assert_eq!(lease.fence().get(), first.get() + 200);
    lease.extend(TTL).await.unwrap();
    // The lease survives the loss of the fence counter.
    scene
        .memory
        .meddle(|world| world.counter = Counter::default());
    lease.extend(TTL).await.unwrap();
    tasks.iter().for_each(JoinHandle::abort);
    sleep(MS).await;
    lease.release().await.unwrap();
    let named = |sent: &Sent| match &sent.step {
        Step::Extend { fence, .. } | Step::Release { fence, .. } => *fence,
        _ => None,
    };
    let sent = [
        scene.sent("extend"),
        scene.sent("release").split_off(before),
    ]
    .concat();
    assert!(sent.len() >= 3 && sent.iter().all(|sent| named(sent) == Some(first)));
}

/// The replica has neither the hold nor its fences. Its clock has passed these fences.
#[tokio::test(start_paused = true)]
async fn a_counter_that_is_rolled_back_draws_no_fence_twice() {
    let scene = Scene::begin();
    let replica: World = scene.memory.meddle(|world| world.clone());
    let (lease, tasks) = stay(&scene.mutex(), 13).await;
    sleep(MS).await;
    scene.memory.meddle(|world| *world = replica);
    let theirs = scene.other.mutex("m").ttl(TTL).acquire().await.unwrap();
    assert!(theirs.fence().get() > lease.fence().get() + 13 * 16);
    let lost = cause(lease.extend(TTL).await.unwrap_err());
    assert!(matches!(lost, LossCause::NotHeld(Some(_))), "{lost}");
    let mut before = theirs.fence();
    theirs.release().await.unwrap();
    for task in tasks {
        let after = task.await.unwrap();
        assert!(after.fence() > before);
        before = after.fence();
    }
}

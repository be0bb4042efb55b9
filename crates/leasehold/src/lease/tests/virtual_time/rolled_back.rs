//! A failover to a replica that lags, which knows neither the last fences nor, perhaps, their counter.

use leasehold_core::{Counter, World};

use super::handing_on::stay;
use super::*;

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

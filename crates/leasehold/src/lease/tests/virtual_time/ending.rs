//! The end of a lease, as its work and its watches learn of it.

use super::handing_on::stay;
use super::*;
use crate::LeaseEnd;

fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(future)
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_output_when_the_release_is_not_confirmed() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::Vanish);
    let ran = lease.run(async |_| "paid invoice 42").await.unwrap();
    assert_eq!(ran.output, "paid invoice 42");
    let told = store_error(ran.released.clone().unwrap_err());
    assert_eq!(told.kind, StoreErrorKind::TimedOut);
    store_error(ran.confirmed().unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_output_when_the_release_tells_of_a_loss() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let fence = lease.fence();
    let work = async |_: &Lease| scene.other.break_lock("m", fence).await;
    let ran = lease.run(work).await.unwrap().transpose().unwrap();
    assert!(ran.output);
    let told = cause(ran.released.unwrap_err());
    assert_eq!(told, LossCause::NotHeld(None));
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_output_of_work_that_slept_past_its_lease() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let ran = lease.run(async |_| scene.clock.suspend(TTL)).await.unwrap();
    let told = cause(ran.released.unwrap_err());
    assert_eq!(told, LossCause::Deadline(None));
}

#[tokio::test(start_paused = true)]
async fn a_mutex_runs_work_when_it_has_the_lock() {
    let scene = Scene::begin();
    let mutex = scene.mutex();
    let ran = mutex.run(async |lease| lease.fence()).await.unwrap();
    assert!(ran.confirmed().is_ok() && scene.is_free().await);
    let ran = mutex.run_within(SECOND, async |_| 2).await.unwrap();
    assert_eq!(ran.confirmed().unwrap(), 2);
    let ran = mutex.try_run(async |_| 3).await.unwrap();
    assert_eq!(ran.unwrap().confirmed().unwrap(), 3);

    let _taken = scene.taken_by_another().await;
    let never = async |_: &Lease| panic!("the lock is taken");
    assert!(mutex.try_run(never).await.unwrap().is_none());
    let late = mutex.run_within(SECOND, never).await;
    assert!(matches!(late, Err(Error::Timeout(_))), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_a_task_hears_of_the_loss_and_of_the_release() {
    for lost in [true, false] {
        let scene = Scene::begin();
        let lease = scene.mutex().auto_renew(!lost).acquire().await.unwrap();
        let watch = lease.watch();
        let told = spawn({
            let watch = watch.clone();
            async move { watch.ended().await }
        });
        sleep(SECOND).await;
        assert!(!told.is_finished() && watch.end().is_none());
        assert_eq!(watch.valid_until(), Some(lease.valid_until()));
        if lost {
            sleep(TTL).await;
        } else {
            lease.release().await.unwrap();
        }
        let end = told.await.unwrap();
        assert_eq!(matches!(end, LeaseEnd::Lost(_)), lost, "{end:?}");
        assert_eq!(watch.is_lost(), lost);
        assert_eq!(
            (watch.valid_until(), watch.valid_for()),
            (None, Duration::ZERO)
        );
    }
}

/// A struct can hold a lease together with the future of its loss, because that future does not borrow the lease.
struct Worker {
    lease: Lease,
    lost: BoxFuture<'static, crate::Lost>,
}

#[tokio::test(start_paused = true)]
async fn a_struct_can_have_a_lease_and_its_loss() {
    let scene = Scene::begin();
    let lease = scene.mutex().auto_renew(false).acquire().await.unwrap();
    let watch = lease.watch();
    let lost = async move { watch.lost().await }.boxed();
    let worker = Worker { lease, lost };
    let lost = worker.lost.await;
    assert_eq!(lost.fence, Some(worker.lease.fence()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_does_not_keep_the_lock() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let watch = lease.watch();
    drop(lease);
    assert!(scene.is_free().await);
    assert!(matches!(watch.ended().await, LeaseEnd::Released));
    let for_ever = tokio::time::timeout(TTL * 100, watch.lost());
    for_ever.await.unwrap_err();
    // A watch does not keep the client alive.
    let (weak, watching) = {
        let client = scene.client.clone();
        let lease = client.mutex("n").acquire().await.unwrap();
        (Arc::downgrade(&client.engine), lease.watch())
    };
    drop(scene);
    sleep(TTL).await;
    assert!(weak.upgrade().is_none(), "{watching:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_belongs_to_one_lease_of_those_handed_on() {
    let scene = Scene::begin();
    let (first, mut tasks) = stay(&scene.mutex(), 1).await;
    let (watch, releases) = (first.watch(), scene.sent("release").len());
    first.release().await.unwrap();
    let next = tasks.remove(0).await.unwrap();
    assert_eq!(scene.sent("release").len(), releases, "handed on");
    assert!(matches!(watch.end(), Some(LeaseEnd::Released)));
    let also = next.watch();
    assert!(also.end().is_none() && also.fence() > watch.fence());
    scene.other.break_lock("m", next.fence()).await.unwrap();
    next.extend(TTL).await.unwrap_err();
    assert!(also.is_lost() && !watch.is_lost());
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_before_its_release_is_lost_for_a_watch() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let watch = lease.watch();
    // The deadline has passed, but the client has not noticed this before the release.
    scene.clock.suspend(TTL);
    drop(lease);
    assert!(watch.is_lost());
    assert!(matches!(watch.ended().await, LeaseEnd::Lost(_)));
}

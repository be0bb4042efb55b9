//! The end of a lease, as its work and its watches learn of it.

use super::handing_on::stay;
use super::*;
use crate::LeaseEnd;

fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(future)
}

/// The error of a program.
#[derive(Debug)]
enum Failed {
    OutOfPaper,
    Lock(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

/// The short program: one `?` and no type beside the closure.
async fn short(mutex: &crate::Mutex, has_paper: bool) -> Result<u32, Failed> {
    mutex
        .run(async |_| {
            if !has_paper {
                return Err(Failed::OutOfPaper);
            }
            Ok(7)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn the_short_program_has_its_own_error_and_ours() {
    let scene = Scene::begin();
    let mutex = scene.mutex();
    assert_eq!(short(&mutex, true).await.unwrap(), 7);
    let failed = short(&mutex, false).await.unwrap_err();
    assert!(matches!(failed, Failed::OutOfPaper), "{failed:?}");
    assert!(scene.is_free().await, "whatever the work returned");
    assert!(scene.client.close().await);
    let closed = short(&mutex, true).await.unwrap_err();
    let Failed::Lock(Error::Store(closed)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(closed.kind, StoreErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_output_when_the_release_is_not_confirmed() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::Vanish);
    let ran = lease.run(async |_| Ok::<_, Error>("paid invoice 42")).await;
    assert_eq!(ran.unwrap(), "paid invoice 42");
}

#[tokio::test(start_paused = true)]
async fn run_tells_of_a_loss_that_the_release_finds() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let fence = lease.fence();
    let work = async |_: &Lease| scene.other.break_lock("m", fence).await;
    let told = cause(lease.run(work).await.unwrap_err());
    assert_eq!(told, LossCause::NotHeld(None));
}

#[tokio::test(start_paused = true)]
async fn run_tells_that_the_work_slept_past_its_lease() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let work = async |_: &Lease| {
        scene.clock.suspend(TTL);
        Ok::<_, Error>(())
    };
    let told = cause(lease.run(work).await.unwrap_err());
    assert_eq!(told, LossCause::Deadline(None));
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_work_comes_before_a_loss() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let work = async |_: &Lease| {
        scene.clock.suspend(TTL);
        Err::<(), _>(Failed::OutOfPaper)
    };
    let failed = lease.run(work).await.unwrap_err();
    assert!(matches!(failed, Failed::OutOfPaper), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mutex_runs_work_when_it_has_the_lock() {
    let scene = Scene::begin();
    let mutex = scene.mutex();
    let number = async |_: &Lease| Ok::<_, Error>(2);
    assert_eq!(mutex.run(number).await.unwrap(), 2);
    assert!(scene.is_free().await);
    assert_eq!(mutex.run_within(SECOND, number).await.unwrap(), 2);
    assert_eq!(mutex.try_run(number).await.unwrap(), Some(2));

    let _taken = scene.taken_by_another().await;
    let never = async |_: &Lease| -> Result<(), Error> { panic!("the lock is taken") };
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

#[tokio::test(start_paused = true)]
async fn a_token_is_cancelled_by_the_loss_and_not_by_the_release() {
    let scene = Scene::begin();
    let runtime = tokio::runtime::Handle::current();
    for lost in [true, false] {
        let lease = scene.mutex().auto_renew(!lost).acquire().await.unwrap();
        let watch = lease.watch();
        let tasks = runtime.metrics().num_alive_tasks();
        let (token, mine) = (watch.cancellation_token(), watch.cancellation_token());
        (0..100).for_each(|_| drop(watch.cancellation_token()));
        assert_eq!(runtime.metrics().num_alive_tasks(), tasks);
        mine.cancel();
        sleep(SECOND).await;
        assert!(!token.is_cancelled(), "that was another one");
        if lost {
            token.cancelled().await;
            assert!(lease.is_lost());
            drop(lease);
        } else {
            lease.release().await.unwrap();
            sleep(TTL * 2).await;
        }
        assert_eq!(token.is_cancelled(), lost);
        assert_eq!(watch.cancellation_token().is_cancelled(), lost, "late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_asked_for_too_late_is_cancelled_at_once() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let early = lease.watch().cancellation_token();
    // The deadline has passed, but the client has not noticed this.
    scene.clock.suspend(TTL);
    assert!(lease.watch().cancellation_token().is_cancelled());
    drop(lease);
    assert!(early.is_cancelled());
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

//! Locks with an at-least time, which counts from the grant.

use super::*;

const LEAST: Duration = Duration::from_secs(10);

impl Scene {
    fn kept(&self) -> crate::Mutex {
        self.mutex().at_least(LEAST)
    }

    /// Checks that the lock is taken until `time` after `moment`, and free then.
    async fn is_taken_until(&self, moment: Moment, time: Duration, what: &str) {
        sleep(time - MS - self.since(moment)).await;
        assert!(!self.is_free().await, "{what}: free too soon");
        sleep(MS * 2).await;
        assert!(self.is_free().await, "{what}: kept for too long");
    }
}

fn fails(lease: Result<Lease, Error>) -> Result<(), Error> {
    let _lease = lease?;
    Err(StoreError::closed().into())
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_however_its_lease_ends() {
    let ends = [
        "drop", "release", "later", "?", "panic", "run", "close", "cancel",
    ];
    for how in ends {
        let scene = Scene::begin();
        let lease = scene.kept().acquire().await.unwrap();
        let granted = scene.clock.now();
        sleep(SECOND * 3).await;
        match how {
            "release" => lease.release().await.unwrap(),
            "later" => lease.release_after(SECOND).await.unwrap(),
            "?" => drop(fails(Ok(lease)).unwrap_err()),
            "panic" => {
                let work = async move {
                    let _lease = lease;
                    panic!("on purpose");
                };
                let task = tokio::runtime::Handle::current().spawn(work);
                assert!(task.await.unwrap_err().is_panic());
            }
            "run" => lease.run(async |_| Ok::<_, Error>(())).await.unwrap(),
            "close" => {
                assert!(scene.client.close().await);
                drop(lease);
            }
            "cancel" => {
                let work = lease.run(async |_| pending::<Result<(), Error>>().await);
                assert!(tokio::time::timeout(SECOND, work).await.is_err());
            }
            _ => drop(lease),
        }
        scene.is_taken_until(granted, LEAST, how).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_later_of_both_times_counts() {
    let scene = Scene::begin();
    let lease = scene.kept().acquire().await.unwrap();
    let released = scene.clock.now();
    lease.release_after(LEAST * 2).await.unwrap();
    scene.is_taken_until(released, LEAST * 2, "later").await;

    let lease = scene.kept().acquire().await.unwrap();
    sleep(LEAST).await;
    lease.release().await.unwrap();
    assert!(scene.is_free().await, "held for long enough");
}

#[tokio::test(start_paused = true)]
async fn no_task_of_this_client_has_it_sooner() {
    let scene = Scene::begin();
    let lease = scene.kept().acquire().await.unwrap();
    let granted = scene.clock.now();
    let (next, once) = (in_line(scene.kept()), scene.mutex());
    tokio::task::yield_now().await;
    let third = in_line(scene.kept());
    tokio::task::yield_now().await;
    let fence = lease.fence();
    lease.release().await.unwrap();
    assert!(once.try_acquire().await.unwrap().is_none());
    let next = next.await.unwrap();
    let waited = scene.since(granted);
    assert!(waited >= LEAST && waited < LEAST + SECOND, "{waited:?}");
    assert!(next.fence() > fence);

    // After its at-least time, the client hands the lock on without a request. The time of the next lease counts from its own grant.
    sleep(LEAST).await;
    let releases = scene.sent("release").len();
    next.release().await.unwrap();
    let third = third.await.unwrap();
    assert_eq!(scene.sent("release").len(), releases, "handed on");
    let granted = scene.clock.now();
    drop(third);
    scene.is_taken_until(granted, LEAST, "handed on").await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_lingers_only_when_the_time_is_over() {
    let scene = Scene::begin();
    let mutex = scene.kept().linger(TTL);
    let lease = mutex.acquire().await.unwrap();
    let granted = scene.clock.now();
    lease.release().await.unwrap();
    scene.is_taken_until(granted, LEAST, "kept").await;

    let lease = mutex.acquire().await.unwrap();
    sleep(LEAST).await;
    let released = scene.clock.now();
    lease.release().await.unwrap();
    assert!(scene.mutex().try_acquire().await.unwrap().is_some());
    assert!(scene.since(released) < MS, "it was idle here");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_kept() {
    let scene = Scene::begin();
    let mutex = scene.kept().at_least(TTL * 2);
    let lease = mutex.acquire().await.unwrap();
    scene.other.break_lock("m", lease.fence()).await.unwrap();
    let next = scene.taken_by_another().await;
    cause(lease.release().await.unwrap_err());
    next.release().await.unwrap();
    assert!(scene.is_free().await, "broken");

    let endings = [
        mutex.clone().auto_renew(false),
        mutex.clone().max_hold(SECOND),
    ];
    for ending in endings {
        let lease = ending.acquire().await.unwrap();
        lease.lost().await;
        drop(lease);
        sleep(MS).await;
        assert!(scene.is_free().await, "its time was over");
    }
    let lease = mutex.acquire().await.unwrap();
    scene.clock.suspend(TTL);
    drop(lease);
    sleep(MS).await;
    assert!(scene.is_free().await, "its host slept for too long");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_received_is_not_kept() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::AnswerAfter(SECOND));
    let mutex = scene.kept();
    let late = tokio::time::timeout(SECOND / 2, mutex.acquire());
    late.await.unwrap_err();
    sleep(SECOND).await;
    assert!(scene.is_free().await);

    // The store grants the lock, and the caller drops its future before it sees the lease.
    let taken = scene.taken_by_another().await;
    let mut waiting = Box::pin(mutex.acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    taken.release().await.unwrap();
    sleep(MS).await;
    assert!(!scene.is_free().await, "granted");
    drop(waiting);
    sleep(MS).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_late_cuts_nothing_off() {
    // For some of these times, the remaining time at the second try is shorter than the store can keep a lock.
    for least in (20..60).map(Duration::from_millis) {
        let scene = Scene::begin();
        let lease = scene.kept().at_least(least).acquire().await.unwrap();
        let granted = scene.clock.now();
        scene.next("release", Fate::Refuse);
        drop(lease);
        while !scene.is_free().await {
            sleep(MS).await;
        }
        assert!(scene.since(granted) >= least, "{least:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_detached_has_a_time_of_its_own() {
    let scene = Scene::begin();
    let lease = scene.kept().acquire().await.unwrap();
    let detached = scene.clock.now();
    let (_detached, _) = lease.detach(SECOND * 5).await.unwrap();
    scene.is_taken_until(detached, SECOND * 5, "detached").await;

    // If the caller does not get the token, the at-least time counts as after any other end of a lease.
    let lease = scene.kept().acquire().await.unwrap();
    let granted = scene.clock.now();
    scene.next("release", Fate::Hang);
    let detaching = tokio::time::timeout(SECOND, lease.detach(SECOND * 5));
    detaching.await.unwrap_err();
    scene.is_taken_until(granted, LEAST, "not detached").await;
}

#[tokio::test(start_paused = true)]
async fn the_time_has_a_bound() {
    let scene = Scene::begin();
    let day = Duration::from_secs(24 * 60 * 60);
    let refused = scene.mutex().at_least(day + MS).acquire().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    for least in [MS, day] {
        let lease = scene.mutex().at_least(least).acquire().await.unwrap();
        let granted = scene.clock.now();
        drop(lease);
        // The store cannot keep a lock for less than 10 ms.
        let kept = least.max(MS * 10);
        scene.is_taken_until(granted, kept, "at a bound").await;
    }
}

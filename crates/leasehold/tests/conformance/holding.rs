//! One lease: its extension, its release, its loss.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Clock, Error, Fence, LossCause};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, eventually, look, on_every_store, passing, take};

const MS: Duration = Duration::from_millis(1);

async fn one_holds_and_the_next_is_let_in_by_the_release(place: Place) {
    let (a, b) = place.two().await;
    let first = take(&a, "m").await;
    assert_eq!((first.name(), first.owner().client()), ("m", a.id()));
    for client in [&a, &b] {
        let busy = client.mutex("m").try_acquire().await;
        assert!(busy.expect("the store answers").is_none());
    }
    let fence = first.fence();
    first.release().await.expect("it was held");
    assert!(take(&b, "m").await.fence() > fence);
}

async fn a_lease_outlives_its_client(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    drop(a);
    lease.extend(TTL * 2).await.expect("it is held");
    lease.release().await.expect("it is held");
    take(&b, "m").await.release().await.expect("it is held");
}

async fn extend_sets_a_new_deadline(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    lease.extend(TTL * 10).await.expect("it is held");
    assert!(lease.valid_for() > TTL * 9);
    let seen = look(&b, "m").await.holder.expect("it is held");
    assert!(seen.expires_in > Some(TTL * 9), "{seen:?}");
    lease.extend(TTL / 2).await.expect("it is held");
    assert!(lease.valid_for() < TTL / 2);
    let seen = look(&b, "m").await.holder.expect("it is held");
    assert!(seen.expires_in <= Some(TTL / 2), "{seen:?}");
}

async fn a_lock_can_be_kept_taken_after_its_release(place: Place) {
    let (a, b) = place.two().await;
    let clock = Clock::system();
    let lease = take(&a, "m").await;
    let released = clock.now();
    lease.release_after(MS * 400).await.expect("it was held");
    let next = b.mutex("m").acquire_within(LONG).await;
    // The store may round by one millisecond.
    assert!(clock.now().since(released) >= MS * 399);
    drop(next.expect("it was kept for no longer"));
}

async fn a_lock_stays_taken_for_a_least_time(place: Place) {
    let (a, b) = place.two().await;
    let clock = Clock::system();
    let mutex = a.mutex("m").ttl(TTL).at_least(MS * 400);
    let asked = clock.now();
    drop(mutex.acquire().await.expect("it is free"));
    let here = mutex.acquire_within(LONG).await;
    // The store may round by one millisecond.
    assert!(clock.now().since(asked) >= MS * 399, "nor here");
    drop(here.expect("it was kept for no longer"));
    let there = b.mutex("m").acquire_within(LONG).await;
    assert!(clock.now().since(asked) >= MS * 798, "nor there");
    drop(there.expect("it was kept for no longer"));
}

async fn run_gives_the_output_and_releases(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    let output = lease
        .run(async |lease| {
            assert!(look(&b, "m").await.holder.is_some());
            Ok::<_, Error>(lease.fence())
        })
        .await
        .expect("it was held all the time");
    assert!(take(&b, "m").await.fence() > output);
}

async fn run_cancels_work_whose_lease_is_lost(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    let fence = lease.fence();
    let work = Arc::new(());
    let held_by_work = work.clone();
    let working = lease.run(async move |lease| {
        assert!(b.break_lock("m", fence).await.expect("the store answers"));
        drop(lease.extend(TTL).await);
        pending::<()>().await;
        drop(held_by_work);
        Ok::<(), Error>(())
    });
    let result = timeout(LONG, working).await.expect("it is cancelled");
    let Err(Error::Lost(lost)) = result else {
        panic!("the work never ends: {result:?}");
    };
    assert_eq!(lost.fence, Some(fence));
    assert_eq!(Arc::strong_count(&work), 1, "the work is gone");
}

async fn a_lock_is_waited_for_in_a_task_of_its_own(place: Place) {
    let (a, b) = place.two().await;
    let held = take(&a, "m").await;
    let mut tasks = JoinSet::new();
    tasks.spawn(b.mutex("m").ttl(TTL).acquire_owned());
    tasks.spawn(b.mutex("m").ttl(TTL).acquire_within_owned(LONG));
    let busy = b.mutex("m").try_acquire_owned().await;
    assert!(busy.expect("the store answers").is_none());
    held.release().await.expect("it was held");
    while let Some(lease) = tasks.join_next().await {
        let lease = lease.expect("no panic").expect("its turn");
        lease.release().await.expect("it was held");
    }
}

async fn a_broken_lease_is_lost_and_its_holder_is_told(place: Place) {
    let (a, b) = place.two().await;
    let lease = take(&a, "m").await;
    let stale = Fence::new(lease.fence().get() - 1);
    assert!(!b.break_lock("m", stale).await.expect("the store answers"));
    assert!(b.break_lock("m", lease.fence()).await.expect("it answers"));
    assert!(!b.break_lock("m", lease.fence()).await.expect("it answers"));
    let next = take(&b, "m").await;

    let watch = lease.watch();
    let mut watching = JoinSet::new();
    watching.spawn(async move { (watch.lost().await, watch.is_lost()) });
    let refused = lease.extend(TTL).await.expect_err("it was broken");
    assert!(matches!(refused, Error::Lost(_)), "{refused:?}");
    let lost = timeout(LONG, lease.lost()).await.expect("at once");
    let told = timeout(LONG, watching.join_next()).await.expect("at once");
    let (told, is_lost) = told.expect("one").expect("no panic");
    assert!(is_lost && told.fence == lost.fence);
    let LossCause::NotHeld(Some(holder)) = lost.cause else {
        panic!("{lost}")
    };
    assert_eq!(holder.fence, Some(next.fence()));
    let told = lease.release().await.expect_err("it was broken");
    assert!(matches!(told, Error::Lost(_)), "{told:?}");
    next.release().await.expect("the late release is nobody's");
}

async fn a_broken_lease_is_noticed_by_the_release(place: Place) {
    let (a, b) = place.two().await;
    for by_owner in [false, true] {
        let lease = take(&a, "m").await;
        let broken = if by_owner {
            b.break_holder("m", lease.owner()).await
        } else {
            b.break_lock("m", lease.fence()).await
        };
        assert!(broken.expect("it answers"));
        match lease.release().await.expect_err("it was broken") {
            Error::Lost(lost) => assert_eq!(lost.cause, LossCause::NotHeld(None)),
            other => panic!("{other:?}"),
        }
    }
}

async fn a_broken_lease_is_noticed_by_its_next_renewal(place: Place) {
    let (_place, time, [a, b]) = place.in_test_time().await;
    let lease = take(&a, "m").await;
    assert!(b.break_lock("m", lease.fence()).await.expect("it answers"));
    time.pass(TTL / 2);
    let lost = timeout(LONG, lease.lost()).await.expect("it renews itself");
    assert_eq!(lost.cause, LossCause::NotHeld(None));
}

async fn a_lease_that_is_not_renewed_expires(place: Place) {
    let (place, time, [a, b]) = place.in_test_time().await;
    let mutex = a.mutex("m").ttl(TTL).auto_renew(false);
    let lease = timeout(LONG, mutex.acquire()).await.expect("it is free");
    let lease = lease.expect("it is free");
    time.pass(lease.valid_for());
    assert!(lease.is_lost(), "before anyone else has it");
    place.expire_at_servers("m").await;
    let mutex = b.mutex("m").ttl(TTL);
    let next = passing(&time, "it expires", mutex.acquire()).await;
    assert!(next.expect("it expired").fence() > lease.fence());
}

async fn close_ends_everything_and_frees_all(place: Place) {
    let (a, b) = place.two().await;
    let (held, also) = (take(&a, "m").await, take(&a, "n").await);
    let theirs = take(&b, "theirs").await;
    let mutex = a.mutex("theirs").ttl(TTL);
    let (refused, ()) = tokio::join!(mutex.acquire(), async {
        eventually("it queues", async || {
            look(&b, "theirs").await.queue.len() == 1
        })
        .await;
        a.close().await;
    });
    for lease in [&held, &also] {
        let lost = lease.loss().expect("the client is closed");
        assert_eq!(lost.cause, LossCause::Closed);
    }
    for name in ["m", "n"] {
        assert_eq!(look(&b, name).await.holder, None);
    }
    assert!(look(&b, "theirs").await.queue.is_empty());
    let released = held.release().await;
    assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    for closed in [refused.map(Some), a.mutex("m").try_acquire().await] {
        match closed.expect_err("the client is closed") {
            Error::Store(error) => {
                assert_eq!(error.kind, leasehold::StoreErrorKind::Closed);
            }
            other => panic!("{other:?}"),
        }
    }
    a.close().await;
    theirs.release().await.expect("it is none of the other's");
}

on_every_store! {
    one_holds_and_the_next_is_let_in_by_the_release
    a_lease_outlives_its_client
    extend_sets_a_new_deadline
    a_lock_can_be_kept_taken_after_its_release
    a_lock_stays_taken_for_a_least_time
    run_gives_the_output_and_releases
    run_cancels_work_whose_lease_is_lost
    a_lock_is_waited_for_in_a_task_of_its_own
    a_broken_lease_is_lost_and_its_holder_is_told
    a_broken_lease_is_noticed_by_the_release
    a_broken_lease_is_noticed_by_its_next_renewal
    a_lease_that_is_not_renewed_expires
    close_ends_everything_and_frees_all
}

//! Readers of one client: they share a stay, and each has an end of its own.

use leasehold_core::{HAND_OVER_FOR, HAND_OVERS};

use super::handing_on::queue;
use super::*;
use crate::{ReadLease, ReadLock};

impl Scene {
    fn reader(&self) -> ReadLock {
        self.client.rw_lock("m").read().ttl(TTL)
    }

    async fn read(&self) -> ReadLease {
        self.reader().acquire().await.unwrap()
    }

    /// How many acquisitions, renewals and releases were sent.
    fn requests(&self) -> [usize; 3] {
        ["acquire", "extend", "release"].map(|verb| self.sent(verb).len())
    }
}

#[tokio::test(start_paused = true)]
async fn readers_join_without_a_request_and_the_last_one_releases() {
    let scene = Scene::begin();
    let first = scene.read().await;
    let mut readers = Vec::new();
    for _ in 0..100 {
        let reader = scene.reader().try_acquire().await.unwrap().unwrap();
        assert_eq!(reader.fence(), first.fence());
        readers.push(reader);
    }
    assert_eq!(scene.requests(), [1, 0, 0]);
    let last = readers.pop().unwrap();
    first.release().await.unwrap();
    drop(readers);
    assert_eq!(scene.requests(), [1, 0, 0]);
    sleep(TTL * 2).await;
    assert!(!last.is_lost() && !scene.is_free().await, "renewed");
    last.release().await.unwrap();
    assert_eq!(scene.requests()[2], 1);
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_writer_here_waits_for_the_readers_before_it_only() {
    let scene = Scene::begin();
    let first = scene.read().await;
    let writer = queue(&scene.mutex(), 1).await.pop().unwrap();
    let behind = queue(&scene.reader(), 2).await;
    assert!(scene.reader().try_acquire().await.unwrap().is_none());
    assert_eq!(scene.requests(), [1, 0, 0]);
    let fence = first.fence();
    first.release().await.unwrap();
    let written = writer.await.unwrap();
    assert!(Some(written.fence()) > fence);
    sleep(SECOND).await;
    assert!(behind.iter().all(|reader| !reader.is_finished()));
    let fence = written.fence();
    written.release().await.unwrap();
    let mut fences = Vec::new();
    let mut readers = Vec::new();
    for reader in behind {
        let reader = reader.await.unwrap();
        fences.push(reader.fence().unwrap());
        readers.push(reader);
    }
    assert!(fences[0] > fence && fences[0] == fences[1], "{fences:?}");
    assert_eq!(scene.requests(), [3, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn readers_behind_a_writer_that_leaves_join_at_once() {
    let scene = Scene::begin();
    let first = scene.read().await;
    let writer = queue(&scene.mutex(), 1).await.pop().unwrap();
    let behind = queue(&scene.reader(), 2).await;
    let left = scene.clock.now();
    writer.abort();
    for reader in behind {
        assert_eq!(reader.await.unwrap().fence(), first.fence());
    }
    assert_eq!(scene.since(left), Duration::ZERO);
    assert_eq!(scene.requests(), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_line_does_not_ask_for_a_writer_that_has_left() {
    let scene = Scene::begin();
    let theirs = scene.other.rw_lock("m").read().ttl(TTL);
    let theirs = theirs.acquire().await.unwrap();
    let writer = queue(&scene.mutex(), 1).await.pop().unwrap();
    let reader = queue(&scene.reader(), 1).await.pop().unwrap();
    assert!(!reader.is_finished(), "behind the writer");
    writer.abort();
    let reader = reader.await.unwrap();
    assert_eq!(reader.fence(), theirs.fence(), "of one phase");
    drop((reader, theirs));
    sleep(SECOND).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_line_does_not_wait_for_a_writer_that_only_tried() {
    let scene = Scene::begin();
    let theirs = scene.other.rw_lock("m").read().ttl(TTL);
    let theirs = theirs.acquire().await.unwrap();
    scene.each("acquire", || Fate::CarryOutAfter(SECOND));
    let writer = scene.mutex();
    let tries = tokio::runtime::Handle::current().spawn(async move { writer.try_acquire().await });
    tokio::task::yield_now().await;
    let reader = queue(&scene.reader(), 1).await.pop().unwrap();
    assert!(tries.await.unwrap().unwrap().is_none());
    let asked = scene.clock.now();
    let reader = reader.await.unwrap();
    assert_eq!(reader.fence(), theirs.fence(), "of one phase");
    assert_eq!(scene.since(asked), SECOND);
}

#[tokio::test(start_paused = true)]
async fn sixteen_readers_join_while_another_client_waits() {
    let scene = Scene::begin();
    let first = scene.read().await;
    let writer = in_line(scene.other.mutex("m").ttl(TTL));
    tokio::task::yield_now().await;
    let mut readers = queue(&scene.reader(), HAND_OVERS as usize + 2).await;
    let late = readers.split_off(HAND_OVERS as usize);
    assert!(readers.iter().all(JoinHandle::is_finished));
    assert!(late.iter().all(|late| !late.is_finished()));
    let fence = first.fence();
    drop(first);
    for reader in readers {
        drop(reader.await.unwrap());
    }
    let written = writer.await.unwrap();
    assert!(Some(written.fence()) > fence);
    let fence = written.fence();
    drop(written);
    for reader in late {
        assert!(reader.await.unwrap().fence().unwrap() > fence);
    }
}

#[tokio::test(start_paused = true)]
async fn or_for_fifty_milliseconds() {
    for (held, joins) in [(HAND_OVER_FOR - MS, true), (HAND_OVER_FOR, false)] {
        let scene = Scene::begin();
        let _first = scene.read().await;
        let _writer = in_line(scene.other.mutex("m").ttl(TTL));
        tokio::task::yield_now().await;
        sleep(held).await;
        let joined = scene.reader().try_acquire().await.unwrap();
        assert_eq!(joined.is_some(), joins);
    }
}

/// A thousand readers wait for one grant: they enter with it.
#[tokio::test(start_paused = true)]
async fn readers_that_wait_for_a_grant_enter_together() {
    let scene = Scene::begin();
    let theirs = scene.taken_by_another().await;
    let readers = queue(&scene.reader(), 1_000).await;
    let next = in_line(scene.other.mutex("m").ttl(TTL));
    tokio::task::yield_now().await;
    drop(theirs);
    for reader in readers {
        drop(reader.await.unwrap());
    }
    drop(next.await.unwrap());
    assert_eq!(scene.requests(), [1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_reader_is_its_own() {
    let scene = Scene::begin();
    let short = scene.reader().max_hold(SECOND * 5).acquire().await.unwrap();
    let other = scene.read().await;
    let asked = scene.clock.now();
    assert!(matches!(short.lost().await.cause, LossCause::MaxHold));
    assert_eq!(scene.since(asked), SECOND * 5);
    sleep(TTL).await;
    assert!(!other.is_lost());
    other.release().await.unwrap();
    assert_eq!(scene.requests()[2], 1);
    assert!(scene.is_free().await, "though a lost reader is out");
    let (next, _) = scene.lease().await;
    assert!(matches!(
        cause(short.release().await.unwrap_err()),
        LossCause::MaxHold
    ));
    assert_eq!(scene.requests()[2], 1, "released once");
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_reader_that_is_lost_gives_the_lock_up() {
    let scene = Scene::begin();
    let short = scene.reader().max_hold(SECOND * 5).acquire().await.unwrap();
    let writer = queue(&scene.mutex(), 1).await.pop().unwrap();
    // A renewal is under way then.
    scene.each("extend", || Fate::CarryOutAfter(SECOND * 20));
    let lasts = scene.reader();
    let asked = scene.clock.now();
    drop(writer.await.unwrap());
    assert_eq!(scene.since(asked), SECOND * 5);
    assert!(short.is_lost());
    drop((short, lasts));
    sleep(TTL).await;
    assert_eq!(scene.requests()[2], 2, "of the readers, and of the writer");
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_renew_itself_has_its_own_time() {
    let scene = Scene::begin();
    let first = scene.read().await;
    for ttl in [TTL / 3, TTL * 2] {
        let own = scene.reader().auto_renew(false).ttl(ttl);
        let asked = scene.clock.now();
        let own = own.acquire().await.unwrap();
        own.lost().await;
        let lasted = scene.since(asked);
        let least = ttl - ttl / 50 - SECOND;
        assert!(lasted <= ttl && lasted >= least, "{ttl:?}: {lasted:?}");
    }
    assert!(!first.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_longer_time_of_one_reader_is_that_of_its_stay() {
    let scene = Scene::begin();
    let first = scene.read().await;
    sleep(SECOND).await;
    let longer = scene.reader().ttl(TTL * 4).acquire().await.unwrap();
    sleep(MS).await;
    assert_eq!(scene.requests(), [1, 1, 0], "renewed at once");
    assert!(first.valid_for() > TTL * 3 && longer.valid_for() > TTL * 3);
    longer.extend(SECOND).await.unwrap();
    assert!(first.valid_for() > TTL * 3, "not shortened");
    longer.extend(TTL * 8).await.unwrap();
    assert!(first.valid_for() > TTL * 7 && longer.valid_for() > TTL * 7);
    assert_eq!(scene.requests(), [1, 3, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_extended_by_hand_has_that_time() {
    let scene = Scene::begin();
    let first = scene.read().await;
    let own = scene.reader().auto_renew(false).acquire().await.unwrap();
    sleep(TTL / 2).await;
    let asked = scene.clock.now();
    own.extend(TTL * 2).await.unwrap();
    assert!(own.valid_for() > TTL * 2 - SECOND);
    own.lost().await;
    let lasted = scene.since(asked);
    assert!(
        lasted <= TTL * 2 && lasted > TTL * 2 - SECOND * 2,
        "{lasted:?}"
    );
    assert!(matches!(
        cause(own.extend(TTL).await.unwrap_err()),
        LossCause::Deadline(_)
    ));
    assert!(!first.is_lost());
}

#[tokio::test(start_paused = true)]
async fn doubt_ends_with_the_next_renewal_and_nobody_joins_until_then() {
    let scene = Scene::begin();
    let first = scene.read().await;
    let own = scene.reader().auto_renew(false).acquire().await.unwrap();
    scene.each("extend", || Fate::Refuse);
    sleep(TTL / 2).await;
    assert!(first.is_doubtful() && own.is_doubtful());
    let next = queue(&scene.reader(), 1).await.pop().unwrap();
    assert!(!next.is_finished());
    scene.all_goes_well();
    sleep(SECOND).await;
    assert!(next.is_finished());
    let next = next.await.unwrap();
    assert!(!first.is_doubtful() && !own.is_doubtful() && !next.is_doubtful());
    assert_eq!(next.fence(), first.fence());
    assert_eq!(scene.requests()[0], 1);
}

#[tokio::test(start_paused = true)]
async fn a_stay_that_is_lost_is_the_loss_of_each_reader() {
    let scene = Scene::begin();
    let mut readers = vec![scene.read().await, scene.read().await, scene.read().await];
    let writer = queue(&scene.mutex(), 1).await.pop().unwrap();
    let fence = readers[0].fence().unwrap();
    assert!(scene.other.break_lock("m", fence).await.unwrap());
    drop(writer.await.unwrap());
    let last = readers.pop().unwrap();
    for reader in readers {
        assert!(matches!(reader.lost().await.cause, LossCause::NotHeld(_)));
        cause(reader.release().await.unwrap_err());
    }
    assert_eq!(scene.requests()[2], 1, "of the writer");
    cause(last.release().await.unwrap_err());
    assert_eq!(scene.requests()[2], 2);
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_each_reader_and_keeps_what_one_wants_kept() {
    for least in [Duration::ZERO, SECOND * 10] {
        let scene = Scene::begin();
        let granted = scene.clock.now();
        let kept = scene.reader().at_least(least).acquire().await.unwrap();
        let other = scene.read().await;
        sleep(SECOND).await;
        assert!(scene.client.close().await);
        for reader in [kept, other] {
            assert!(matches!(
                cause(reader.release().await.unwrap_err()),
                LossCause::Closed
            ));
        }
        assert_eq!(scene.requests(), [1, 0, 1]);
        assert_eq!(scene.is_free().await, least.is_zero());
        sleep(SECOND * 10 - scene.since(granted) + MS).await;
        assert!(scene.is_free().await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_stay_is_joined_by_readers_and_given_up_for_a_writer() {
    let scene = Scene::begin();
    let lingers = scene.reader().linger(TTL);
    let fence = lingers.acquire().await.unwrap().fence();
    tokio::task::yield_now().await;
    sleep(TTL / 2).await;
    let [asked, _, released] = scene.requests();
    assert_eq!((asked, released), (1, 0));
    let again = lingers.acquire().await.unwrap();
    assert_eq!(again.fence(), fence);
    assert_eq!((scene.requests()[0], scene.requests()[2]), (1, 0));
    drop(again);
    tokio::task::yield_now().await;
    let (mine, _) = scene.lease().await;
    assert!(Some(mine.fence()) > fence);
    drop(mine);
    drop(lingers.acquire().await.unwrap());
    tokio::task::yield_now().await;
    let asked = scene.clock.now();
    drop(scene.taken_by_another().await);
    assert_eq!(scene.since(asked), Duration::ZERO);
    drop(lingers.acquire().await.unwrap());
    sleep(TTL + SECOND).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn the_least_time_of_any_reader_counts() {
    let least = SECOND * 10;
    // The last reader gives the lock back, is lost before, or comes back after its loss.
    for last in ["releases", "is lost", "is late"] {
        let scene = Scene::begin();
        let granted = scene.clock.now();
        let kept = scene.reader().at_least(least).acquire().await.unwrap();
        let other = scene.reader().max_hold(SECOND * 5).acquire().await.unwrap();
        sleep(SECOND).await;
        kept.release().await.unwrap();
        match last {
            "releases" => other.release().await.unwrap(),
            "is lost" => drop(other.lost().await),
            _ => {
                other.lost().await;
                cause(other.release_after(TTL).await.unwrap_err());
            }
        }
        sleep(least - MS - scene.since(granted)).await;
        assert!(!scene.is_free().await, "{last}: too soon");
        sleep(MS * 3).await;
        assert!(scene.is_free().await, "{last}: too late");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_reader_wants_kept_is_not() {
    let scene = Scene::begin();
    let short = scene.reader().max_hold(SECOND).acquire().await.unwrap();
    let other = scene.read().await;
    short.lost().await;
    cause(short.release_after(TTL).await.unwrap_err());
    other.release().await.unwrap();
    assert!(scene.is_free().await);
}

/// The lock was released to be kept, and a reader that was lost before comes back.
#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_late_frees_nothing() {
    let scene = Scene::begin();
    let short = scene.reader().max_hold(SECOND).acquire().await.unwrap();
    let other = scene.read().await;
    short.lost().await;
    other.release_after(SECOND * 10).await.unwrap();
    cause(short.release().await.unwrap_err());
    assert!(!scene.is_free().await);
    sleep(SECOND * 10 + MS).await;
    assert!(scene.is_free().await);
}

/// A stay that another reader wants kept is not idle: nobody may have it.
#[tokio::test(start_paused = true)]
async fn a_stay_that_is_to_be_kept_does_not_linger() {
    let scene = Scene::begin();
    let kept = scene
        .reader()
        .at_least(SECOND * 10)
        .acquire()
        .await
        .unwrap();
    let lingers = scene.reader().linger(TTL).acquire().await.unwrap();
    kept.release().await.unwrap();
    lingers.release().await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(scene.requests()[2], 1);
    sleep(SECOND * 10 + MS).await;
    assert!(scene.is_free().await);
}

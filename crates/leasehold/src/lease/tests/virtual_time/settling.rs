//! A client leaves nothing in the store, even if its requests fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_is_repeated_and_good() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.next("release", Fate::LoseReply);
    lease.release().await.unwrap();
    assert_eq!(scene.sent("release").len(), 2);
}

/// As after a failover, the store loses the lock and grants it to another client. The first release gets no answer.
#[tokio::test(start_paused = true)]
async fn a_second_release_that_finds_an_older_holder_tells_the_loss() {
    for fate in [|| Fate::Vanish, || Fate::LoseReply] {
        let scene = Scene::begin();
        let (lease, _) = scene.lease().await;
        scene.memory.meddle(std::mem::take);
        let _theirs = scene.taken_by_another().await;
        sleep(SECOND).await;
        scene.next("release", fate());
        let lost = cause(lease.release().await.unwrap_err());
        assert!(matches!(lost, LossCause::NotHeld(Some(_))), "{lost}");
        assert_eq!(scene.sent("release").len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_release_that_finds_the_next_holder_is_good() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let next = in_line(scene.other.mutex("m").ttl(TTL));
    sleep(MS).await;
    let mut tries = 0;
    scene.plan(move |step| {
        tries += u32::from(matches!(step, Step::Release { .. }));
        match tries {
            1 => Fate::LoseReply,
            _ => Fate::CarryOutAfter(SECOND),
        }
    });
    lease.release().await.unwrap();
    assert!(!next.await.unwrap().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_confirmed_says_so_and_goes_on() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::Vanish);
    let asked = scene.clock.now();
    let failed = store_error(lease.release().await.unwrap_err());
    assert_eq!(failed.kind, StoreErrorKind::TimedOut);
    assert!(failed.may_have_taken_effect);
    assert!(scene.since(asked) < SECOND * 4, "{:?}", scene.since(asked));
    assert!(!scene.is_free().await);
    scene.all_goes_well();
    sleep(SECOND * 2).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_kept_is_kept_from_the_call_on() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let called = scene.clock.now();
    let mut tries = 0;
    scene.plan(move |step| {
        tries += u32::from(matches!(step, Step::Release { .. }));
        if tries < 5 { Fate::Refuse } else { Fate::Pass }
    });
    lease.release_after(SECOND * 10).await.unwrap();
    assert!(scene.since(called) > MS * 100, "it took a while to arrive");
    sleep(SECOND * 9 + MS * 998 - scene.since(called)).await;
    assert!(!scene.is_free().await);
    sleep(MS * 4).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn acquisition_arriving_after_give_up_is_undone_each_time() {
    let scene = Scene::begin();
    scene.each("acquire", || Fate::Vanish);
    let failed = store_error(scene.mutex().try_acquire().await.unwrap_err());
    assert!(failed.may_have_taken_effect);
    scene.all_goes_well();
    let lying_about = scene.sent("acquire").pop().unwrap();
    for _ in 0..3 {
        sleep(SECOND * 8).await;
        assert!(scene.is_free().await);
        scene.arrives_late(&lying_about);
        assert!(!scene.is_free().await);
        sleep(SECOND + MS).await;
        assert!(scene.is_free().await, "undone within a second");
    }
    sleep(TTL).await;
    let releases = scene.sent("release").len();
    sleep(TTL * 10).await;
    assert_eq!(scene.sent("release").len(), releases, "it ends some time");
}

#[tokio::test(start_paused = true)]
async fn acquisition_arriving_after_release_of_retry_is_undone() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::Vanish);
    let (lease, _) = scene.lease().await;
    lease.release().await.unwrap();
    let lying_about = scene.sent("acquire").swap_remove(0);
    scene.arrives_late(&lying_about);
    assert!(!scene.is_free().await);
    sleep(SECOND + MS).await;
    assert!(scene.is_free().await, "undone within a second");
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_whose_answer_is_lost_is_found_again() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::LoseReply);
    let (lease, asked) = scene.lease().await;
    assert!(scene.since(asked) < SECOND);
    let seen = scene.other.inspect("m").await.unwrap();
    let seen = seen.holder.unwrap();
    assert_eq!(seen.fence, Some(lease.fence()), "one grant, one fence");
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_during_a_request_leaves_nothing() {
    for verdict in [
        || Fate::AnswerAfter(SECOND * 5),
        || Fate::CarryOutAfter(SECOND * 5),
    ] {
        let scene = Scene::begin();
        scene.next("acquire", verdict());
        let mutex = scene.mutex();
        tokio::time::timeout(SECOND, mutex.acquire())
            .await
            .unwrap_err();
        sleep(SECOND * 4 + MS).await;
        assert!(scene.sent("acquire")[0].answered);
        assert!(scene.is_free().await);
    }
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_in_line_leaves_it_at_once() {
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    let mutex = scene.mutex();
    // The caller leaves before the next poll of its client is due.
    tokio::time::timeout(SECOND * 9 / 2, mutex.acquire())
        .await
        .unwrap_err();
    sleep(MS).await;
    assert!(scene.other.inspect("m").await.unwrap().queue.is_empty());
    taken.release().await.unwrap();
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_someone_who_gave_up_is_given_back() {
    let scene = Scene::begin();
    let taken = scene.taken_by_another().await;
    // The store refuses the release that leaves the queue, until the client has given up its retries.
    scene.each("release", || Fate::Refuse);
    let mutex = scene.mutex().ttl(SECOND);
    tokio::time::timeout(SECOND, mutex.acquire())
        .await
        .unwrap_err();
    sleep(SECOND * 3).await;
    let tried = scene.sent("release").len();
    scene.all_goes_well();
    assert_eq!(scene.other.inspect("m").await.unwrap().queue.len(), 1);

    taken.release().await.unwrap();
    sleep(MS).await;
    assert_eq!(scene.sent("release").len(), tried + 1);
    assert!(
        scene.is_free().await,
        "without waiting out the claim window"
    );
}

#[tokio::test(start_paused = true)]
async fn close_leaves_no_lease_that_was_on_its_way() {
    let scene = Scene::begin();
    scene.each("acquire", || Fate::AnswerAfter(SECOND));
    let mutex = scene.mutex();
    let (lease, ()) = tokio::join!(mutex.acquire(), async {
        sleep(MS * 100).await;
        scene.client.close().await;
    });
    assert_eq!(store_error(lease.unwrap_err()).kind, StoreErrorKind::Closed);
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_requests_but_no_longer_than_lease() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::AnswerAfter(SECOND * 3));
    let called = scene.clock.now();
    assert!(scene.client.close().await, "all was confirmed");
    assert_eq!(scene.since(called), SECOND * 3);
    assert_eq!(lease.loss().map(|lost| lost.cause), Some(LossCause::Closed));
    assert!(scene.is_free().await);

    let scene = Scene::begin();
    let (_lease, _) = scene.lease().await;
    scene.each("release", || Fate::Refuse);
    let called = scene.clock.now();
    assert!(scene.client.close_within(Duration::MAX).await);
    let waited = scene.since(called);
    assert!(waited > TTL && waited < TTL + SECOND * 3, "{waited:?}");
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn close_has_a_limit_and_says_whether_all_was_confirmed() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::Hang);
    let limits = [
        (None, SECOND * 4),
        (Some(SECOND), SECOND),
        (Some(Duration::ZERO), Duration::ZERO),
    ];
    for (limit, waits) in limits {
        let called = scene.clock.now();
        let settled = match limit {
            None => scene.client.close().await,
            Some(limit) => scene.client.close_within(limit).await,
        };
        assert!(!settled);
        assert!(scene.since(called) - waits < MS * 2);
        assert_eq!(lease.loss().map(|lost| lost.cause), Some(LossCause::Closed));
    }

    // A release that the store carries out after the return of `close` still counts.
    let scene = Scene::begin();
    let (_lease, _) = scene.lease().await;
    scene.each("release", || Fate::CarryOutAfter(SECOND * 6));
    assert!(!scene.client.close().await);
    assert!(!scene.is_free().await);
    sleep(SECOND * 3).await;
    assert!(scene.is_free().await);
    assert!(scene.client.close().await);
}

/// The release of a detach keeps the lock. If a repeat finds the lock free, another client has freed it.
#[tokio::test(start_paused = true)]
async fn detached_lease_broken_before_confirmation_is_lost() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let fence = lease.fence();
    scene.next("release", Fate::LoseReply);
    let detaching = tokio::runtime::Handle::current().spawn(lease.detach(TTL));
    while scene.sent("release").is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(scene.other.break_lock("m", fence).await.unwrap());
    let answer = detaching.await.unwrap();
    assert!(matches!(answer, Err(Error::Lost(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_detach_leaves_nothing_despite_late_requests() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::Vanish);
    let (lease, _) = scene.lease().await;
    let mut refusals = 1;
    scene.plan(move |step| match step {
        Step::Release { .. } if refusals > 0 => {
            refusals -= 1;
            Fate::Hang
        }
        _ => Fate::Pass,
    });
    let detaching = tokio::time::timeout(SECOND, lease.detach(TTL));
    detaching.await.unwrap_err();
    sleep(MS).await;
    assert!(scene.is_free().await);
    let lying_about = scene.sent("acquire").swap_remove(0);
    scene.arrives_late(&lying_about);
    assert!(!scene.is_free().await);
    sleep(SECOND + MS).await;
    assert!(scene.is_free().await, "undone within a second");
}

/// Counts the warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, what: &tracing::Metadata<'_>) -> bool {
        *what.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn who_stops_detaching_has_not_lost_the_lease() {
    for fate in [|| Fate::Refuse, || Fate::LoseReply, || Fate::Vanish] {
        let warnings = Warnings::default();
        let _listening = tracing::subscriber::set_default(warnings.clone());
        let scene = Scene::begin();
        let (lease, _) = scene.lease().await;
        scene.next("release", fate());
        let detaching = tokio::time::timeout(MS * 5, lease.detach(TTL));
        detaching.await.unwrap_err();
        sleep(SECOND).await;
        assert!(scene.is_free().await);
        // One release to keep the lock, and one to free it: an owner has one settlement.
        assert_eq!(scene.sent("release").len(), 2);
        assert_eq!(warnings.0.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}

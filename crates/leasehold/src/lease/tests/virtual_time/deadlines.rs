//! A lease reports its loss at its current deadline (RN2), even if an earlier deadline was later. The loss is final (L3).

use super::*;

/// Two leases of 30 s: one with renewals, one without.
async fn both(scene: &Scene) -> [Lease; 2] {
    let other = scene.client.mutex("n").ttl(TTL).auto_renew(false);
    [scene.lease().await.0, other.acquire().await.unwrap()]
}

/// Checks that the lease reports its loss when this time has passed since `asked`.
async fn told(scene: &Scene, lease: &Lease, asked: Moment, after: Duration) {
    assert_eq!(lease.valid_until().since(asked), after);
    assert!(matches!(lease.lost().await.cause, LossCause::Deadline(_)));
    let told = scene.since(asked);
    assert!(told >= after && told <= after + MS, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_shorter_extension_does_not_delay_loss() {
    let scene = Scene::begin();
    for lease in both(&scene).await {
        scene.each("extend", || Fate::Hang);
        let asked = scene.clock.now();
        drop(lease.extend(SECOND * 5).now_or_never());
        told(&scene, &lease, asked, SECOND * 5 - MS * 52).await;
        scene.all_goes_well();
    }
}

/// A wake grants the lease while a poll with a TTL of 30 s is on its way. The test extends the lease to 300 s, which counts only as
/// long as the poll allows (RN4). Then the client gives up the poll, and the poll arrives late. Returns the lease and the time of that.
async fn straggling(scene: &Scene, auto_renew: bool) -> (Lease, Moment) {
    let held = scene.taken_by_another().await;
    let waiting = in_line(scene.mutex().auto_renew(auto_renew));
    sleep(MS * 500).await;
    scene.each("acquire", || Fate::VanishAfter(SECOND * 4));
    sleep(SECOND).await;
    let polled = scene.sent("acquire").pop().unwrap();
    assert!(!polled.answered);
    held.release().await.unwrap();
    let lease = waiting.await.unwrap();
    lease.extend(TTL * 10).await.unwrap();
    assert_eq!(lease.valid_for(), TTL - DRIFT);
    while scene.sent("acquire").iter().any(|sent| !sent.answered) {
        sleep(MS).await;
    }
    assert!(lease.valid_for() <= TTL - DRIFT);
    scene.arrives_late(&polled);
    (lease, scene.clock.now())
}

#[tokio::test(start_paused = true)]
async fn poll_that_may_have_shortened_lease_does_not_delay_loss() {
    let scene = Scene::begin();
    let (lease, given_up) = straggling(&scene, false).await;
    let told = lease.lost().await;
    assert!(matches!(told.cause, LossCause::Deadline(_)), "{told}");
    let took = scene.since(given_up);
    assert!(took <= TTL - DRIFT + MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn lease_maybe_shortened_by_poll_is_renewed_before_end() {
    let scene = Scene::begin();
    let (lease, _) = straggling(&scene, true).await;
    sleep(TTL * 20).await;
    assert!(!lease.is_lost(), "{:?}", lease.loss());
    assert!(lease.valid_for() > TTL, "the poll is not expected for ever");
}

#[tokio::test(start_paused = true)]
async fn answer_after_unreported_deadline_revives_nothing() {
    let scene = Scene::begin();
    for lease in both(&scene).await {
        scene.each("extend", || Fate::AnswerAfter(MS * 20));
        let extended = lease.extend(TTL);
        let asleep = async {
            sleep(MS * 10).await;
            // The deadline passes while the host sleeps. The answer reaches the client before its timer.
            scene.clock.suspend(TTL - SECOND / 10);
            assert!(lease.is_lost());
        };
        let (extended, ()) = tokio::join!(extended, asleep);
        assert!(matches!(
            cause(extended.unwrap_err()),
            LossCause::Deadline(_)
        ));
        assert!(lease.is_lost(), "{:?}", lease.valid_for());
        assert_eq!(lease.lost().now_or_never().map(|_| ()), Some(()));
    }
    scene.all_goes_well();
    sleep(MS).await;
    assert!(scene.is_free().await, "nobody waits for what is left");
}

//! Renewal, doubt and loss when the store fails or is late.

use leasehold_core::Ttl;

use super::*;
use crate::store::Notice;

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_a_doubt_and_not_a_loss() {
    let scene = Scene::begin();
    let (lease, asked) = scene.lease().await;
    scene.each("extend", || Fate::Refuse);
    sleep(TTL * 2 / 3).await;
    assert!(lease.is_doubtful() && !lease.is_lost());
    assert_eq!(lease.valid_until().since(asked), TTL - DRIFT, "as before");

    scene.all_goes_well();
    sleep(SECOND).await;
    assert!(!lease.is_doubtful() && !lease.is_lost());
    assert!(lease.valid_for() > TTL - SECOND - DRIFT);
    sleep(TTL * 10).await;
    assert!(!lease.is_lost());
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_retried_once_store_answers_again() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let sound = scene
        .client
        .mutex("n")
        .ttl(TTL * 100)
        .acquire()
        .await
        .unwrap();
    scene.each("extend", || Fate::Refuse);
    while !lease.is_doubtful() || scene.sent("extend").len() < 8 {
        sleep(MS).await;
    }
    let tried = scene.sent("extend").len();
    scene.all_goes_well();
    scene.client.engine.hear(Notice::Reconnected { node: 0 });
    sleep(MS).await;
    assert!(!lease.is_doubtful(), "not when the pause is over");
    assert_eq!(scene.sent("extend").len(), tried + 1);
    for lease in [lease, sound] {
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_until_the_deadline_lose_the_lease_then() {
    for fate in [|| Fate::Refuse, || Fate::Vanish] {
        let scene = Scene::begin();
        let (lease, asked) = scene.lease().await;
        scene.each("extend", fate);
        let lost = lease.lost().await;
        let told = scene.since(asked);
        assert!(told >= TTL - DRIFT && told <= TTL - DRIFT + MS, "{told:?}");
        let LossCause::Deadline(Some(failure)) = lost.cause else {
            panic!("{lost}")
        };
        assert!(failure.contains("as the script says"), "{failure}");
        assert!(scene.sent("extend").len() > 10, "it was tried until then");
        let told = cause(lease.release().await.unwrap_err());
        assert!(matches!(told, LossCause::Deadline(Some(_))), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_delay_the_loss() {
    let scene = Scene::begin();
    let (lease, asked) = scene.lease().await;
    scene.each("extend", || Fate::Hang);
    let lost = lease.lost().await;
    let told = scene.since(asked);
    assert!(told >= TTL - DRIFT && told <= TTL - DRIFT + MS, "{told:?}");
    assert_eq!(lost.cause, LossCause::Deadline(None), "no failure was seen");
    assert_eq!(scene.sent("extend").len(), 1, "one under way at a time");
}

#[tokio::test(start_paused = true)]
async fn one_lease_that_hangs_does_not_delay_another() {
    let scene = Scene::begin();
    let (first, _) = scene.lease().await;
    let second = scene.client.mutex("n").ttl(TTL).acquire().await.unwrap();
    let stuck = first.owner().clone();
    scene.plan(move |step| match step {
        Step::Extend { owner, .. } if *owner == stuck => Fate::Hang,
        _ => Fate::Pass,
    });
    sleep(TTL * 3).await;
    assert!(first.is_lost() && !second.is_lost());
}

#[tokio::test(start_paused = true)]
async fn renewals_of_a_lease_do_not_overtake_each_other() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("extend", || Fate::AnswerAfter(SECOND * 8));
    for _ in 0..20 {
        sleep(SECOND * 3).await;
        let open = |sent: &&Sent| !sent.answered;
        assert!(scene.sent("extend").iter().filter(open).count() <= 1);
    }
    assert!(!lease.is_lost(), "late answers are answers");
}

#[tokio::test(start_paused = true)]
async fn deadline_counts_from_before_request_not_from_answer() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::AnswerAfter(SECOND * 5));
    let (lease, asked) = scene.lease().await;
    assert_eq!(scene.since(asked), SECOND * 5);
    assert_eq!(lease.valid_until().since(asked), TTL - DRIFT);

    scene.each("extend", || Fate::AnswerAfter(SECOND * 5));
    let asked = scene.clock.now();
    lease.extend(TTL * 2).await.unwrap();
    assert_eq!(scene.since(asked), SECOND * 5);
    assert_eq!(
        lease.valid_until().since(asked),
        TTL * 2 - SECOND * 6 / 10 - MS * 2
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_took_effect_after_the_loss_is_undone() {
    // The store carries it out in time and answers too late, or carries it out between the client's deadline and its own.
    for fate in [
        || Fate::AnswerAfter(SECOND * 25),
        || Fate::CarryOutAfter(TTL * 2 / 3 + DRIFT / 2),
    ] {
        let scene = Scene::begin();
        let (lease, _) = scene.lease().await;
        scene.next("extend", fate());
        lease.lost().await;
        sleep(DRIFT * 3 / 4).await;
        if scene.sent("extend").iter().any(|sent| !sent.answered) {
            assert!(!scene.is_free().await, "the store gave it 30 s more");
            sleep(SECOND * 6).await;
        }
        assert!(scene.sent("extend")[0].answered);
        assert!(scene.is_free().await, "nobody waits for those 30 s");
        assert!(lease.is_lost(), "an answer brings nothing back");
        assert_eq!(scene.sent("extend").len(), 1, "nothing renews it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_during_a_renewal_is_the_end_of_it() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.next("extend", Fate::AnswerAfter(SECOND * 3));
    sleep(TTL / 3 + SECOND).await;
    assert!(!scene.sent("extend")[0].answered);
    lease.release_after(SECOND * 20).await.unwrap();
    sleep(SECOND * 19).await;
    assert!(!scene.is_free().await, "kept on purpose");
    sleep(SECOND * 2).await;
    assert!(scene.is_free().await);
    assert_eq!(scene.sent("extend").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn extension_that_may_have_shortened_lease_counts() {
    for fate in [|| Fate::Vanish, || Fate::LoseReply] {
        let scene = Scene::begin();
        let lease = scene.mutex().auto_renew(false).acquire().await.unwrap();
        scene.next("extend", fate());
        let asked = scene.clock.now();
        let failed = store_error(lease.extend(SECOND * 5).await.unwrap_err());
        assert!(failed.may_have_taken_effect);
        assert!(lease.is_doubtful());
        assert_eq!(lease.valid_until().since(asked), SECOND * 5 - MS * 52);
        lease.lost().await;
        assert!(scene.since(asked) < SECOND * 5);
    }
}

#[tokio::test(start_paused = true)]
async fn longer_extension_waits_while_shorter_one_may_arrive() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.next("extend", Fate::Vanish);
    store_error(lease.extend(SECOND * 5).await.unwrap_err());
    let asked = scene.clock.now();
    lease.extend(TTL * 10).await.unwrap();
    assert_eq!(lease.valid_until().since(asked), SECOND * 5 - MS * 52);
    // The first extension arrives now and shortens the lease. The client never relied on a later deadline.
    let late = scene.sent("extend").swap_remove(0);
    scene.arrives_late(&late);
    sleep(SECOND * 20).await;
    assert!(!lease.is_lost(), "renewed as the shorter one asks for");
    sleep(SECOND * 20).await;
    assert!(lease.valid_for() > TTL, "it is not expected for ever");
}

#[tokio::test(start_paused = true)]
async fn extensions_by_hand_during_a_renewal_share_the_next_one() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("extend", || Fate::AnswerAfter(SECOND * 2));
    sleep(TTL / 3).await;
    assert!(!scene.sent("extend")[0].answered);
    let asked = scene.clock.now();
    let (first, second) = tokio::join!(lease.extend(TTL), lease.extend(TTL * 4));
    first.unwrap();
    second.unwrap();
    let sent = scene.sent("extend");
    assert_eq!(sent.len(), 2);
    assert!(
        matches!(&sent[1].step, Step::Extend { ttl, .. } if *ttl == Ttl::new(TTL * 4).unwrap())
    );
    assert!(lease.valid_until().since(asked) > TTL * 3);
}

#[tokio::test(start_paused = true)]
async fn lease_handed_on_unrenewed_is_renewed_once_store_answers() {
    let scene = Scene::begin();
    let lingering = || scene.mutex().linger(TTL);
    drop(lingering().acquire().await.unwrap());
    scene.each("extend", || Fate::Refuse);
    sleep(TTL * 2 / 5).await;
    let tried = scene.sent("extend").len();
    assert!(tried > 2, "{tried}");
    let lease = lingering().acquire().await.unwrap();
    assert!(!lease.is_lost());
    scene.all_goes_well();
    scene.client.engine.hear(Notice::Reconnected { node: 0 });
    sleep(MS).await;
    assert!(lease.valid_for() > TTL - SECOND, "{:?}", lease.valid_for());
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_lock_with_failed_renewal_is_not_handed_on() {
    for comes_back in [false, true] {
        let scene = Scene::begin();
        let mutex = scene.mutex().linger(TTL * 2);
        mutex.acquire().await.unwrap().release().await.unwrap();
        scene.each("extend", || Fate::Refuse);
        sleep(TTL / 3 + SECOND).await;
        assert!(!scene.sent("extend").is_empty());
        if comes_back {
            scene.all_goes_well();
            sleep(SECOND * 2).await;
        }
        let _lease = mutex.try_acquire().await.unwrap().unwrap();
        let asked = scene.sent("acquire").len();
        assert_eq!(asked, if comes_back { 1 } else { 2 });
    }
}

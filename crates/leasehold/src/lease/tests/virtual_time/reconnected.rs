//! A new connection may lead to another server, or to one that was away. So a client does not rely on times and confirmations from an
//! earlier connection.

use leasehold_core::{Block, Fence, Owner, Wake};

use super::*;
use crate::store::Notice;

impl Scene {
    fn hears(&self, notice: Notice) {
        self.client.engine.hear(notice);
    }

    fn is_connected_anew(&self) {
        self.hears(Notice::Cut {
            node: 0,
            why: "on purpose",
        });
        self.hears(Notice::Reconnected { node: 0 });
    }

    fn waiter(&self) -> Owner {
        match &self.sent("acquire").last().unwrap().step {
            Step::Acquire { owner, .. } => owner.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Sends the waiter a wake. The grant is of this moment, by the clock of the present server.
    fn is_granted_by_another_clock(&self) {
        let wake = Wake {
            owner: self.waiter(),
            fence: Some(Fence::new(Fence::MAX.get() / 2)),
            slot: None,
            block: Block::ONE,
            at_us: self.clock.store_now().clock_us,
            queued: 0,
        };
        let key = "test:m".into();
        self.hears(Notice::Granted { key, wake });
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_is_dated_by_an_answer_of_its_own_connection_only() {
    for reconnects in [false, true] {
        let scene = Scene::begin();
        let _theirs = scene.taken_by_another().await;
        let waiting = in_line(scene.mutex());
        sleep(MS * 10).await;
        scene.each("acquire", || Fate::Hang);
        if reconnects {
            scene.is_connected_anew();
        }
        sleep(MS).await;
        scene.is_granted_by_another_clock();
        sleep(MS).await;
        assert_eq!(waiting.is_finished(), !reconnects);
    }
}

/// The client sent the request over the earlier connection.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_dates_no_wake_of_the_next_connection() {
    let scene = Scene::begin();
    let _theirs = scene.taken_by_another().await;
    let mut first = true;
    scene.plan(move |_| {
        if std::mem::take(&mut first) {
            Fate::AnswerAfter(MS * 100)
        } else {
            Fate::Hang
        }
    });
    let waiting = in_line(scene.mutex());
    sleep(MS * 10).await;
    scene.is_connected_anew();
    sleep(MS * 100).await;
    assert!(scene.sent("acquire")[0].answered);
    scene.is_granted_by_another_clock();
    sleep(MS).await;
    assert!(!waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn late_request_is_undone_at_next_connection() {
    let scene = Scene::begin();
    scene.plan(|_| Fate::Vanish);
    let failed = scene.mutex().ttl(SECOND * 2).try_acquire().await;
    assert!(store_error(failed.unwrap_err()).may_have_taken_effect);
    sleep(SECOND * 30).await;
    let tried = scene.sent("release").len();
    scene.all_goes_well();
    sleep(SECOND * 30).await;
    assert_eq!(scene.sent("release").len(), tried, "nobody tries any more");
    // A stopped server goes on and carries out an old request.
    let lying_about = scene.sent("acquire").pop().unwrap();
    scene.arrives_late(&lying_about);
    assert!(!scene.is_free().await);
    scene.is_connected_anew();
    sleep(MS).await;
    assert!(scene.is_free().await);
    scene.is_connected_anew();
    sleep(MS).await;
    assert_eq!(scene.sent("release").len(), tried + 1, "once");
}

/// While a server is away, the pauses between two attempts grow to a second.
#[tokio::test(start_paused = true)]
async fn failed_release_is_repeated_at_the_next_connection() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::Refuse);
    drop(lease);
    sleep(SECOND * 5).await;
    scene.all_goes_well();
    scene.is_connected_anew();
    sleep(MS).await;
    assert!(scene.is_free().await);
    let tried = scene.sent("release").len();
    scene.is_connected_anew();
    sleep(SECOND * 5).await;
    assert_eq!(scene.sent("release").len(), tried);
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_undo_is_repeated_at_connection_after_next() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::Vanish);
    drop(lease);
    for _ in 0..3 {
        sleep(TTL * 2).await;
        let tried = scene.sent("release").len();
        scene.is_connected_anew();
        sleep(MS).await;
        assert_eq!(scene.sent("release").len(), tried + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_on_purpose_is_not_undone_at_the_next_connection() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("release", || Fate::LoseReply);
    lease.release_after(TTL * 10).await.unwrap_err();
    sleep(TTL * 3).await;
    let tried = scene.sent("release").len();
    scene.is_connected_anew();
    sleep(MS).await;
    assert_eq!(scene.sent("release").len(), tried);
    assert!(!scene.is_free().await);
}

/// Two copies of a virtual machine use the same bits in their owners until each copy has connected anew.
#[tokio::test(start_paused = true)]
async fn owners_after_a_new_connection_share_other_bits() {
    let scene = Scene::begin();
    let mut shared = Vec::new();
    for reconnects in [false, false, true] {
        if reconnects {
            scene.is_connected_anew();
        }
        let (lease, _) = scene.lease().await;
        shared.push(scene.waiter().id()[..16].to_owned());
        lease.release().await.unwrap();
    }
    assert_eq!(shared[0], shared[1]);
    assert_ne!(shared[1], shared[2]);
}

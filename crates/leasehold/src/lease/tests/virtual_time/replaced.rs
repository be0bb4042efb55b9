//! After a reconnection, another server answers.

use leasehold_core::Ttl;

use super::handing_on::{made_before, queue};
use super::*;
use crate::error::Replaced;
use crate::store::{Notice, Scope};

/// Tells the client that its new connection leads to another server.
fn replace(scene: &Scene) {
    let engine = &scene.client.engine;
    engine.hear(Notice::Replaced(Replaced::Other, Scope::All));
    engine.hear(Notice::Reconnected { node: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_new_server_confirms_is_as_good_as_before() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    sleep(TTL / 6).await;
    replace(&scene);
    assert!(lease.is_doubtful());
    sleep(MS).await;
    assert!(!lease.is_doubtful() && lease.valid_for() > TTL - DRIFT - SECOND);
    assert_eq!(scene.sent("extend").len(), 1);
    // The replacement is not the cause of a later loss.
    scene.memory.clear();
    assert_eq!(lease.lost().await.replaced, None);
}

#[tokio::test(start_paused = true)]
async fn the_lease_that_ends_soonest_is_asked_for_first() {
    let scene = Scene::begin();
    let mut leases = Vec::new();
    for number in (0..100_u32).rev() {
        let lock = scene
            .client
            .mutex(format!("m{number:02}"))
            .ttl(TTL + SECOND * number);
        leases.push(lock.acquire().await.unwrap());
    }
    replace(&scene);
    sleep(MS).await;
    let sent = scene.sent("extend");
    let names: Vec<_> = sent
        .iter()
        .map(|sent| sent.name.as_str().to_owned())
        .collect();
    assert_eq!(names.len(), 100);
    assert!(names.is_sorted(), "{names:?}");
    assert!(leases.iter().all(|lease| !lease.is_doubtful()));
}

#[tokio::test(start_paused = true)]
async fn a_new_server_that_does_not_answer_is_asked_again() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.each("extend", || Fate::Refuse);
    replace(&scene);
    sleep(SECOND).await;
    assert!(lease.is_doubtful() && scene.sent("extend").len() > 2);
    scene.memory.clear();
    scene.all_goes_well();
    assert_eq!(lease.lost().await.replaced, Some(Replaced::Other));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_confirmed_and_lasts_no_longer() {
    let scene = Scene::begin();
    let lock = scene.mutex().auto_renew(false);
    let lease = lock.acquire().await.unwrap();
    let until = lease.valid_until();
    sleep(TTL / 2).await;
    replace(&scene);
    sleep(MS).await;
    assert!(!lease.is_doubtful());
    let sent = scene.sent("extend");
    assert!(
        matches!(&sent[..], [Sent { step: Step::Extend { ttl, .. }, .. }] if *ttl <= Ttl::new(TTL / 2).unwrap())
    );
    assert!(lease.valid_until() <= until);
    lease.lost().await;
    assert_eq!(scene.sent("extend").len(), 1, "only once");

    let lease = lock.acquire().await.unwrap();
    scene.memory.clear();
    replace(&scene);
    let lost = lease.lost().await;
    assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn idle_lock_is_not_handed_on_before_new_server_confirms() {
    let scene = Scene::begin();
    let lingering = || scene.mutex().linger(TTL);
    let first = lingering().acquire().await.unwrap();
    let fence = first.fence();
    drop(first);
    sleep(SECOND).await;
    scene.memory.clear();
    scene.each("extend", || Fate::AnswerAfter(SECOND));
    replace(&scene);
    let lease = lingering().acquire().await.unwrap();
    assert!(lease.fence() > fence, "the new server granted it");
    assert_eq!(scene.sent("acquire").len(), 2);
    sleep(TTL * 2).await;
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn lease_granted_last_by_old_server_is_confirmed_at_once() {
    let scene = Scene::begin();
    scene.plan(|_| Fate::AnswerAfter(SECOND));
    let taking = in_line(scene.mutex());
    sleep(SECOND / 2).await;
    replace(&scene);
    let lease = taking.await.unwrap();
    assert!(lease.is_doubtful(), "the old server granted it");
    sleep(SECOND + 5 * MS).await;
    scene.all_goes_well();
    assert!(!lease.is_doubtful());
    assert_eq!(scene.sent("extend").len(), 1);
    // A lease that the new server grants is not doubtful.
    lease.release().await.unwrap();
    let (lease, _) = scene.lease().await;
    assert!(!lease.is_doubtful());
    sleep(SECOND).await;
    assert_eq!(scene.sent("extend").len(), 1);
}

/// Of the readers that wait for a grant of the old server, the first has it in doubt, and the others wait for the word of the new one.
#[tokio::test(start_paused = true)]
async fn readers_granted_last_by_old_server_are_confirmed_first() {
    let scene = Scene::begin();
    scene.plan(|_| Fate::AnswerAfter(SECOND));
    let reader = scene.client.rw_lock("m").read().ttl(TTL);
    let mut readers = queue(&reader, 2).await;
    sleep(SECOND / 2).await;
    replace(&scene);
    let first = readers.remove(0).await.unwrap();
    assert!(first.is_doubtful(), "the old server granted it");
    let next = readers.remove(0);
    assert!(!next.is_finished());
    sleep(SECOND + 5 * MS).await;
    assert!(next.is_finished() && !first.is_doubtful());
    assert!(!next.await.unwrap().is_doubtful());
    assert_eq!(scene.sent("extend").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_only_the_old_server_knows_is_lost_as_it_is_taken() {
    let scene = Scene::begin();
    scene.next("acquire", Fate::AnswerAfter(SECOND));
    let taking = in_line(scene.mutex().auto_renew(false));
    sleep(SECOND / 2).await;
    scene.memory.clear();
    replace(&scene);
    let lease = taking.await.unwrap();
    let taken_at = scene.clock.now();
    let lost = lease.lost().await;
    assert!(scene.since(taken_at) <= MS);
    assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_answered_by_the_old_server_confirms_nothing() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    scene.next("extend", Fate::AnswerAfter(SECOND));
    sleep(TTL / 3 + SECOND / 2).await;
    assert_eq!(scene.sent("extend").len(), 1);
    let until = lease.valid_until();
    scene.memory.clear();
    replace(&scene);
    assert!(lease.is_doubtful());
    sleep(SECOND / 2 - MS).await;
    assert_eq!(lease.valid_until(), until);
    let answers_at = scene.clock.now().after(MS);
    let lost = lease.lost().await;
    assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
    assert!(scene.since(answers_at) <= MS && scene.sent("extend").len() == 2);
}

#[tokio::test(start_paused = true)]
async fn caller_whose_renewal_the_old_server_answers_hears_the_new() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let replaces = async || {
        sleep(SECOND / 2).await;
        replace(&scene);
    };
    scene.next("extend", Fate::AnswerAfter(SECOND));
    let (extended, ()) = tokio::join!(lease.extend(TTL), replaces());
    extended.unwrap();
    assert!(!lease.is_doubtful() && scene.sent("extend").len() == 2);
    // The new server does not know it.
    scene.next("extend", Fate::AnswerAfter(SECOND));
    let forgets = async {
        replaces().await;
        scene.memory.clear();
    };
    let (extended, ()) = tokio::join!(lease.extend(TTL), forgets);
    assert!(matches!(extended, Err(Error::Lost(_))), "{extended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_handed_on_as_the_server_is_replaced_is_confirmed() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let next = made_before(&scene, &lease);
    scene.memory.clear();
    replace(&scene);
    let engine = &scene.client.engine;
    engine.hands_on(&next);
    assert!(next.doubted().is_some(), "no server has confirmed it");
    assert!(!next.is_fit_to_hand_on(next.ttl, scene.clock.now()));
    sleep(MS).await;
    let lost = next.loss().expect("the new server does not know it");
    assert_eq!(lost.replaced, Some(Replaced::Other), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_handed_on_as_a_renewal_fails_is_doubtful() {
    let scene = Scene::begin();
    let (lease, _) = scene.lease().await;
    let next = made_before(&scene, &lease);
    scene.each("extend", || Fate::Refuse);
    sleep(TTL / 3 + MS).await;
    assert!(lease.is_doubtful());
    let engine = &scene.client.engine;
    engine.hands_on(&next);
    assert!(next.doubted().is_some());
    scene.all_goes_well();
    sleep(SECOND).await;
    assert_eq!(next.doubted(), None);
}

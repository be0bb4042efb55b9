//! Slots of one client: each has an owner of its own beside its line.

use std::collections::BTreeSet;

use leasehold_core::HAND_OVERS;

use super::handing_on::queue;
use super::*;
use crate::{Permit, Semaphore};

impl Scene {
    fn seats(&self, slots: u16) -> Semaphore {
        self.client.semaphore("m", slots).ttl(TTL)
    }
}

async fn all(tasks: Vec<JoinHandle<Permit>>) -> Vec<Permit> {
    let mut permits = Vec::new();
    for task in tasks {
        permits.push(task.await.unwrap());
    }
    permits
}

fn numbers(permits: &[Permit]) -> BTreeSet<u16> {
    permits.iter().map(|permit| permit.slot().number).collect()
}

#[tokio::test(start_paused = true)]
async fn as_many_tasks_get_as_many_free_slots_in_three_flights() {
    let scene = Scene::begin();
    scene.plan(|_| Fate::CarryOutAfter(SECOND));
    let begun = scene.clock.now();
    let tasks = queue(&scene.seats(64), 64).await;
    let permits = all(tasks).await;
    assert_eq!(scene.since(begun), SECOND * 3);
    assert_eq!(numbers(&permits), (1..=64).collect());
    assert_eq!(scene.steps(), 64, "none for nothing");
    drop(permits);
    sleep(SECOND * 2).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn slots_that_are_not_there_are_not_asked_for() {
    let scene = Scene::begin();
    scene.plan(|_| Fate::CarryOutAfter(SECOND));
    let mut tasks = queue(&scene.seats(3), 20).await;
    let rest = tasks.split_off(3);
    let permits = all(tasks).await;
    assert_eq!(numbers(&permits), (1..=3).collect());
    sleep(SECOND * 5).await;
    // The first one, one more beside the line, that of the line, and its place in the queue.
    let asked = scene.sent("acquire").len();
    assert!(asked <= 3 + 1 + 5, "it polls each second: {asked}");
    let once = |sent: &&Sent| matches!(&sent.step, Step::Acquire { wait: None, .. });
    assert_eq!(scene.sent("acquire").iter().filter(once).count(), 1);
    // A slot that is given back is one that was not free.
    drop(permits);
    for task in rest {
        drop(task.await.unwrap());
    }
    assert_eq!(scene.sent("acquire").iter().filter(once).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_goes_to_the_next_task_without_a_request() {
    let scene = Scene::begin();
    let seats = scene.seats(1);
    let first = seats.acquire().await.unwrap();
    let mut tasks = queue(&seats, 8).await;
    first.release().await.unwrap();
    let mut permit = tasks.remove(0).await.unwrap();
    let asked = scene.sent("acquire").len();
    for task in tasks {
        let last = permit.slot();
        permit.release().await.unwrap();
        permit = task.await.unwrap();
        assert_eq!(permit.slot().number, last.number);
        assert!(permit.slot().fence > last.fence);
    }
    let sent = scene.sent("acquire").len() - asked;
    assert!(sent <= 1, "the line's own: {sent}");
    permit.release().await.unwrap();
    assert!(scene.is_free().await);
}

/// Another client waits for any slot, and the server tells the owner of one.
#[tokio::test(start_paused = true)]
async fn slots_are_handed_on_16_times_while_another_client_waits() {
    for held in [0, 1] {
        let scene = Scene::begin();
        let seats = scene.seats(2);
        let first = vec![
            seats.acquire().await.unwrap(),
            seats.acquire().await.unwrap(),
        ];
        let mut tasks = queue(&seats, 200).await;
        drop(first);
        sleep(MS).await;
        let mut permits = vec![
            tasks.remove(0).await.unwrap(),
            tasks.remove(0).await.unwrap(),
        ];
        let theirs = in_line(scene.other.semaphore("m", 2).ttl(TTL));
        tokio::task::yield_now().await;
        // One task keeps its slot, and the others use the other one.
        let long = permits.remove(held);
        let mut permit = permits.pop().unwrap();
        let mut handed_on = 0;
        while !theirs.is_finished() {
            drop(permit);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            if theirs.is_finished() {
                break;
            }
            permit = tasks.remove(0).await.unwrap();
            handed_on += 1;
            // This client was in the queue before: so often until its turn, and after it.
            assert!(handed_on <= HAND_OVERS * 2 + 1, "slot {held} is kept");
        }
        drop((long, theirs.await.unwrap()));
        tasks.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn slots_whose_answers_are_lost_are_given_back() {
    let scene = Scene::begin();
    let (mut number, mut lost) = (0, 0);
    scene.plan(move |step| match step {
        Step::Acquire { wait: None, .. } => {
            lost += 1;
            if lost % 2 == 0 {
                Fate::LoseReply
            } else {
                Fate::Vanish
            }
        }
        Step::Acquire { .. } => {
            number += 1;
            // The others come before the first is answered.
            if number == 1 {
                Fate::CarryOutAfter(MS)
            } else {
                Fate::Pass
            }
        }
        _ => Fate::Pass,
    });
    let asked = scene.clock.now();
    let permits = all(queue(&scene.seats(8), 8).await).await;
    assert_eq!(numbers(&permits), (1..=8).collect());
    assert!(scene.since(asked) < SECOND, "{:?}", scene.since(asked));
    let once = |sent: &&Sent| matches!(&sent.step, Step::Acquire { wait: None, .. });
    assert!(scene.sent("acquire").iter().filter(once).count() > 5);
    drop(permits);
    sleep(TTL * 2).await;
    assert!(scene.is_free().await);
    assert!(scene.client.close().await);
}

#[tokio::test(start_paused = true)]
async fn who_tries_is_told_beside_a_queue_and_served_beside_permits() {
    let scene = Scene::begin();
    let seats = scene.seats(2);
    let first = seats.acquire().await.unwrap();
    let second = seats.try_acquire().await.unwrap().unwrap();
    assert_ne!(first.slot().number, second.slot().number);
    assert!(seats.try_acquire().await.unwrap().is_none());
    let waits = queue(&seats, 1).await.pop().unwrap();
    let asked = scene.steps();
    assert!(seats.try_acquire().await.unwrap().is_none());
    assert_eq!(scene.steps(), asked, "it is behind the queue");
    first.release().await.unwrap();
    drop((waits.await.unwrap(), second));
    sleep(SECOND).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_each_permit_and_what_is_asked_beside_the_line() {
    let scene = Scene::begin();
    let first = scene.seats(8).acquire().await.unwrap();
    let kept = scene
        .seats(8)
        .at_least(SECOND * 10)
        .acquire()
        .await
        .unwrap();
    scene.each("acquire", || Fate::AnswerAfter(SECOND));
    let waits: Vec<_> = (0..5)
        .map(|_| {
            let seats = scene.seats(8);
            tokio::runtime::Handle::current().spawn(async move { seats.acquire().await.map(drop) })
        })
        .collect();
    // The first of them is answered, and the others are asked for.
    sleep(SECOND + MS).await;
    assert!(scene.client.close().await);
    for (at, waits) in waits.into_iter().enumerate() {
        assert_eq!(waits.await.unwrap().is_ok(), at == 0);
    }
    for permit in [first, kept] {
        assert!(matches!(
            cause(permit.release().await.unwrap_err()),
            LossCause::Closed
        ));
    }
    let left = scene.other.inspect("m").await.unwrap();
    assert_eq!(left.holders().count(), 1, "the one to be kept");
    sleep(SECOND * 10).await;
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_lost_leaves_its_line_alone() {
    let scene = Scene::begin();
    let seats = scene.seats(1).max_hold(SECOND);
    let first = seats.acquire().await.unwrap();
    let waits = queue(&seats, 1).await.pop().unwrap();
    assert!(matches!(first.lost().await.cause, LossCause::MaxHold));
    assert!(!waits.is_finished());
    cause(first.release().await.unwrap_err());
    let next = waits.await.unwrap();
    next.release().await.unwrap();
    assert!(scene.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_writer_and_permits_wait_for_each_other_in_one_line() {
    let scene = Scene::begin();
    let permits = all(queue(&scene.seats(4), 2).await).await;
    let writer = queue(&scene.mutex(), 1).await.pop().unwrap();
    let behind = queue(&scene.seats(4), 2).await;
    assert!(behind.iter().all(|task| !task.is_finished()));
    let last = permits
        .iter()
        .map(|permit| permit.slot().fence)
        .max()
        .unwrap();
    drop(permits);
    let written = writer.await.unwrap();
    assert!(written.fence() > last);
    let fence = written.fence();
    written.release().await.unwrap();
    for permit in all(behind).await {
        assert!(permit.slot().fence > fence);
    }
}

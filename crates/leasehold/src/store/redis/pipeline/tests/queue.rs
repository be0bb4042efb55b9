//! The queue without a server: the tests play the connection and the sweeper.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Block, Fence, Held, LockName, Reply, Step, Ttl};

use super::{acquire, at, number, owner, propose, release, release_under};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::{Answer, Done};
use crate::store::redis::pipeline::{Action, Batch, ConnectionState, DisconnectReason, FEW, Queue};
use crate::store::redis::protocol::{Kind, MOST};

const LIMIT: Duration = Duration::from_secs(2);

/// The answers to the steps, in the order of delivery.
type Answers = Arc<Mutex<Vec<(u64, Answer)>>>;

struct Scene {
    queue: Queue,
    answers: Answers,
}

fn held(queued: u32) -> Reply {
    Reply::Held(Held {
        fence: Some(Fence::new(1)),
        slot: None,
        block: Block::ONE,
        queued,
    })
}

impl Scene {
    /// The connection works.
    fn up() -> Self {
        let scene = Self {
            queue: Queue::new("redis://there/".into()),
            answers: Answers::default(),
        };
        scene.queue.set(ConnectionState::Up {
            listening: true,
            by_slot: false,
        });
        scene
    }

    fn push(&self, number: u64, step: Step, now: Moment, limit: Duration) {
        let answers = self.answers.clone();
        let done = Done::new(move |answer| answers.lock().unwrap().push((number, answer)));
        let name = LockName::new("m").unwrap();
        self.queue.push([(name, step, done)], now, limit);
    }

    /// The next action of the connection, if there is one.
    fn next_action(&self, has_room: bool) -> Option<Action> {
        self.queue.take(has_room)
    }

    fn batches(&self) -> Vec<Batch> {
        match self.next_action(true) {
            Some(Action::Send(batches)) => batches,
            _ => Vec::new(),
        }
    }

    /// The answers since the last call.
    fn answered(&self) -> Vec<(u64, Option<(StoreErrorKind, bool)>)> {
        let taken = std::mem::take(&mut *self.answers.lock().unwrap());
        let told = |error: StoreError| (error.kind, error.may_have_taken_effect);
        taken
            .into_iter()
            .map(|(number, answer)| (number, answer.err().map(told)))
            .collect()
    }
}

fn numbers(batch: &Batch) -> Vec<u64> {
    batch.steps.iter().map(|(_, step)| number(step)).collect()
}

#[test]
fn a_few_steps_go_at_once_and_what_frees_goes_first() {
    let scene = Scene::up();
    for (number, step) in [(1, acquire(1)), (2, release(2)), (3, Step::Inspect)] {
        scene.push(number, step, at(0), LIMIT);
    }
    assert!(scene.next_action(false).is_none(), "there is no room");
    let batches = scene.batches();
    let sent: Vec<_> = batches.iter().map(numbers).collect();
    assert_eq!(sent, [vec![2], vec![1], vec![0]]);
    assert!(scene.batches().is_empty());
    for batch in batches {
        scene
            .queue
            .answer(batch.id, vec![Some(Ok(Reply::Released))]);
    }
    assert_eq!(scene.answered(), [(2, None), (1, None), (3, None)]);
}

/// A release is sent before a proposal that came earlier, which would then vote for an owner that nobody releases any more.
#[test]
fn a_release_recalls_the_proposals_of_its_owner_that_wait() {
    let scene = Scene::up();
    for (number, step) in [(1, propose(1, 7)), (2, propose(2, 8)), (3, propose(1, 9))] {
        scene.push(number, step, at(0), LIMIT);
    }
    let fence = Fence::new(9);
    let give_back = |fence| Step::GiveBack {
        owner: owner(1),
        fence,
    };
    scene.push(4, give_back(Fence::new(6)), at(0), LIMIT);
    assert_eq!(scene.answered(), []);
    scene.push(5, give_back(fence), at(0), LIMIT);
    let not_sent = Some((StoreErrorKind::Unavailable, false));
    assert_eq!(scene.answered(), [(3, not_sent)]);
    let keeps = |seconds| Step::Release {
        owner: owner(1),
        keep: Some(Ttl::new(Duration::from_secs(seconds)).unwrap()),
        fence: Some(fence),
    };
    scene.push(6, keeps(30), at(0), LIMIT);
    assert_eq!(scene.answered(), [], "the lock stays taken");
    scene.push(7, keeps(29), at(0), LIMIT);
    assert_eq!(scene.answered(), [(1, not_sent)]);
    scene.push(8, propose(1, 10), at(0), LIMIT);
    scene.push(9, release(1), at(0), LIMIT);
    assert_eq!(scene.answered(), [(8, not_sent)]);
    let proposed = scene.batches().into_iter().flat_map(|batch| batch.steps);
    let left = proposed.filter(|(_, step)| matches!(step, Step::Propose(_)));
    assert_eq!(left.count(), 1);
}

#[test]
fn many_steps_go_kind_by_kind_and_acquire_never_before_release() {
    let scene = Scene::up();
    let most = u64::try_from(MOST).unwrap();
    let count = most + u64::try_from(FEW).unwrap();
    // Each acquire comes after the release with its number.
    for number in 1..=count {
        scene.push(1_000 + number, release(1_000 + number), at(0), LIMIT);
        scene.push(number, acquire(number), at(0), LIMIT);
    }
    let mut sent = Vec::new();
    loop {
        let batches = scene.batches();
        if batches.is_empty() {
            break;
        }
        sent.extend(batches.iter().map(numbers));
    }
    assert_eq!(sent[0], (1_001..=1_000 + most).collect::<Vec<_>>());
    assert_eq!(sent[1], (1..=most).collect::<Vec<_>>());
    assert!(sent.iter().all(|batch| batch.len() <= MOST));
    let sent = sent.concat();
    assert_eq!(u64::try_from(sent.len()).unwrap(), 2 * count);
    let place = |wanted: u64| sent.iter().position(|number| *number == wanted).unwrap();
    for number in 1..=count {
        assert!(place(1_000 + number) < place(number), "{number}");
        assert!(number == 1 || place(number - 1) < place(number));
    }
}

#[test]
fn a_lock_that_others_want_goes_in_a_batch_of_its_own() {
    let scene = Scene::up();
    let kinds = |scene: &Scene| {
        scene.push(1, acquire(1), at(0), LIMIT);
        scene.push(2, release_under(2), at(0), LIMIT);
        let batches = scene.batches();
        for batch in &batches {
            scene
                .queue
                .answer(batch.id, vec![Some(Ok(Reply::Released))]);
        }
        batches.iter().map(|batch| batch.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&scene), [Kind::Settle, Kind::Acquire]);
    scene.queue.set_contended("m", true);
    assert_eq!(kinds(&scene), [Kind::SettleLong, Kind::AcquireLong]);
    scene.queue.set_contended("m", false);
    scene.queue.set_contended("another", true);
    assert_eq!(kinds(&scene), [Kind::Settle, Kind::Acquire]);

    // Answers show it, too.
    let (name, taken) = (LockName::new("m").unwrap(), Reply::NotHeld(None));
    for (reply, kind) in [(held(2), Kind::SettleLong), (taken, Kind::Settle)] {
        scene.queue.learn([(&name, &reply)].into_iter());
        assert_eq!(kinds(&scene)[0], kind);
    }
}

/// A short form may be followed by the long one, and later steps must not go before that.
#[test]
fn extend_and_release_of_one_lock_keep_order_in_any_form() {
    let scene = Scene::up();
    let kind_of = |batches: &[Batch]| batches.iter().map(|batch| batch.kind).collect::<Vec<_>>();
    scene.push(1, release_under(1), at(0), LIMIT);
    scene.queue.set_contended("m", true);
    scene.push(2, release_under(2), at(0), LIMIT);
    let sent = scene.batches();
    assert_eq!(
        kind_of(&sent),
        [Kind::Settle],
        "both, since the first waits"
    );
    scene.push(3, release_under(3), at(0), LIMIT);
    assert_eq!(
        kind_of(&scene.batches()),
        [Kind::Settle],
        "it is on its way"
    );

    let scene = Scene::up();
    scene.queue.set_contended("m", true);
    scene.push(1, release_under(1), at(0), LIMIT);
    scene.queue.set_contended("m", false);
    scene.push(2, release_under(2), at(0), LIMIT);
    let sent = scene.batches();
    assert_eq!(kind_of(&sent), [Kind::SettleLong]);
    assert_eq!(numbers(&sent[0]), [1, 2]);
    scene.push(3, release_under(3), at(0), LIMIT);
    assert_eq!(kind_of(&scene.batches()), [Kind::Settle], "nothing waits");
}

#[test]
fn a_short_form_on_its_way_costs_another_lock_no_second_request() {
    let scene = Scene::up();
    scene.push(1, release_under(1), at(0), LIMIT);
    assert_eq!(scene.batches().len(), 1);
    let other = LockName::new("another").unwrap();
    scene.queue.set_contended("another", true);
    let (step, done) = (release_under(2), Done::new(drop));
    scene.queue.push([(other, step, done)], at(0), LIMIT);
    assert_eq!(scene.batches()[0].kind, Kind::SettleLong);
}

#[test]
fn step_is_answered_once_by_time_limit_or_server() {
    let scene = Scene::up();
    let short = Duration::from_millis(100);
    scene.push(1, acquire(1), at(0), LIMIT);
    scene.push(2, acquire(2), at(0), short);
    let sent = scene.batches();
    scene.push(3, acquire(3), at(0), short);
    scene.queue.sweep(at(99));
    assert!(scene.answered().is_empty());
    scene.queue.sweep(at(100));
    let mut late = scene.answered();
    late.sort_by_key(|(sequence, _)| *sequence);
    let timed_out = |sent| Some((StoreErrorKind::TimedOut, sent));
    assert_eq!(late, [(2, timed_out(true)), (3, timed_out(false))]);
    assert!(matches!(
        scene.next_action(true),
        Some(Action::CheckLiveness)
    ));

    let replies = vec![Some(Ok(Reply::Released)), Some(Ok(Reply::Released))];
    scene.queue.answer(sent[0].id, replies);
    assert_eq!(scene.answered(), [(1, None)]);
    scene.queue.disconnect(DisconnectReason::Lost);
    scene.queue.sweep(at(60_000));
    assert!(scene.answered().is_empty() && scene.batches().is_empty());
}

#[test]
fn nothing_hangs_on_a_server_that_is_down() {
    let scene = Scene::up();
    scene.push(1, acquire(1), at(0), LIMIT);
    let down = StoreError::new("redis://there/", StoreErrorKind::Unreachable, "refused");
    scene.queue.set(ConnectionState::Down(down));
    scene.push(2, acquire(2), at(1), LIMIT);
    let refused = Some((StoreErrorKind::Unreachable, false));
    assert_eq!(scene.answered(), [(1, refused), (2, refused)]);
}

#[test]
fn lost_connection_leaves_sent_steps_unknown_and_others_queued() {
    let scene = Scene::up();
    scene.push(1, acquire(1), at(0), LIMIT);
    let sent = scene.batches();
    scene.push(2, acquire(2), at(0), LIMIT);
    scene.queue.disconnect(DisconnectReason::Lost);
    let unknown = Some((StoreErrorKind::Unreachable, true));
    assert_eq!(scene.answered(), [(1, unknown)], "it may have been sent");
    assert!(!scene.queue.is_listening());
    scene
        .queue
        .answer(sent[0].id, vec![Some(Ok(Reply::Released))]);
    assert!(scene.answered().is_empty());

    assert!(
        scene.next_action(true).is_none(),
        "there is no connection yet"
    );
    scene.queue.set(ConnectionState::Up {
        listening: true,
        by_slot: false,
    });
    assert_eq!(numbers(&scene.batches()[0]), [2]);
}

/// The sweeper is woken only for a time limit that is nearer than the one it waits for.
#[test]
fn the_sweeper_sleeps_until_the_next_time_limit() {
    let scene = Scene::up();
    let rings = || scene.queue.sweeper_wake.notified().now_or_never().is_some();
    let next = |now| scene.queue.sweep(at(now));
    assert_eq!(next(0), None);
    scene.push(1, acquire(1), at(0), LIMIT);
    assert!(rings());
    assert_eq!(next(0), Some(at(2_000)));
    for number in 2..100 {
        scene.push(number, acquire(number), at(number), LIMIT);
        assert!(!rings(), "{number}");
    }
    scene.push(100, acquire(100), at(100), LIMIT / 2);
    assert!(rings());
    assert_eq!(next(100), Some(at(1_100)));
    while let Some(Action::Send(batches)) = scene.next_action(true) {
        for batch in batches {
            let replies = batch.steps.iter().map(|_| Some(Ok(Reply::Released)));
            scene.queue.answer(batch.id, replies);
        }
    }
    // Nothing is under way, and nothing wakes it any more.
    assert_eq!(next(1_100), None);
}

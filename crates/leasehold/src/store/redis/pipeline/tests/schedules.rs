//! The queue in as many thread schedules as shuttle draws: callers, the connection that comes and goes, and the sweeper at once.
//!
//! A wake that is lost leaves a step without an answer, and a lock that is held while an answer is delivered blocks the caller that sends
//! the next step at once: both are deadlocks for shuttle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex as Plain;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use leasehold_core::{Block, Fence, Held, LockName, Reply};
use shuttle::future::{spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tokio::sync::Notify;

use super::{acquire, at, number, release};
use crate::error::StoreErrorKind;
use crate::store::contract::{Answer, Done};
use crate::store::redis::pipeline::{Action, Batch, ConnectionState, DisconnectReason, Queue};
use crate::sync::explore;

const CALLERS: u64 = 3;
/// Each caller acquires and releases so often.
const CYCLES: u64 = 2;
const STEPS: u64 = CALLERS * CYCLES * 2;

struct Scene {
    queue: Queue,
    /// The answers to each step, by its caller's number.
    answers: Plain<BTreeMap<u64, Vec<Answer>>>,
    all_answered: Notify,
    /// Which connection has carried each step.
    carried: Plain<BTreeMap<u64, usize>>,
}

impl Scene {
    fn begin() -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::new("there".into()),
            answers: Plain::default(),
            all_answered: Notify::new(),
            carried: Plain::default(),
        })
    }

    /// Sends the step of this number, and the caller's next one as soon as it is answered (SQ3).
    fn push(self: &Arc<Self>, step_number: u64) {
        let scene = self.clone();
        let done = Done::new(move |answer| scene.heard(step_number, answer));
        let step = if step_number.is_multiple_of(2) {
            acquire(step_number)
        } else {
            release(step_number)
        };
        // Each third one is swept if it waits.
        let limit = Duration::from_millis(if step_number.is_multiple_of(3) {
            5
        } else {
            500
        });
        let name = LockName::new("m").unwrap();
        self.queue.push([(name, step, done)], at(0), limit);
    }

    fn heard(self: &Arc<Self>, step_number: u64, answer: Answer) {
        let answered = {
            let mut answers = self.answers.lock().unwrap();
            answers.entry(step_number).or_default().push(answer);
            answers.len() as u64
        };
        if !(step_number + 1).is_multiple_of(CYCLES * 2) {
            self.push(step_number + 1);
        } else if answered == STEPS {
            self.all_answered.notify_one();
        }
    }

    /// Takes batches until the queue is closed. Now and then it is lost, with what it carries, and another one follows.
    async fn connection(self: Arc<Self>) {
        let mut number = 0;
        while !self.queue.is_closed() {
            number += 1;
            let state = ConnectionState::Up {
                listening: true,
                by_slot: false,
            };
            self.queue.set(state);
            self.serve(number).await;
            self.queue.disconnect(DisconnectReason::Lost);
            yield_now().await;
        }
    }

    /// Ready when the connection is lost.
    async fn serve(&self, connection: usize) {
        let mut in_flight: Vec<Batch> = Vec::new();
        poll_fn(|context| {
            self.queue.wakes(context.waker());
            loop {
                if self.queue.is_closed() || thread_rng().gen_range(0..12) == 0 {
                    return Poll::Ready(());
                }
                match self.queue.take(in_flight.len() < 2) {
                    Some(Action::Send(batches)) => {
                        for (_, step) in batches.iter().flat_map(|batch| &batch.steps) {
                            let before = self
                                .carried
                                .lock()
                                .unwrap()
                                .insert(number(step), connection);
                            assert_eq!(
                                before,
                                None,
                                "(SQ2) step {} is carried twice",
                                number(step)
                            );
                        }
                        in_flight.extend(batches);
                    }
                    // The server is alive.
                    Some(Action::CheckLiveness | Action::Reconnect) => {}
                    None if in_flight.is_empty() => return Poll::Pending,
                    None => self.answer(&in_flight.remove(0)),
                }
            }
        })
        .await;
    }

    fn answer(&self, batch: &Batch) {
        let answers: Vec<_> = batch
            .steps
            .iter()
            .map(|(_, step)| Some(Ok(reply(number(step)))))
            .collect();
        self.queue.answer(batch.id, answers);
    }

    /// Sweeps at this time and at later ones.
    async fn sweeper(self: Arc<Self>) {
        for millis in [1, 6, 7, 8] {
            self.queue.sweep(at(millis));
            yield_now().await;
        }
    }

    /// (SQ1) Each step was answered once, and an answer of the server is the answer to this step.
    fn check(&self) {
        let answers = self.answers.lock().unwrap();
        let carried = self.carried.lock().unwrap();
        assert_eq!(answers.len() as u64, STEPS);
        for (step, heard) in answers.iter() {
            let [answer] = &heard[..] else {
                panic!("step {step} has {} answers", heard.len());
            };
            match answer {
                Ok(said) => assert_eq!(*said, reply(*step)),
                Err(error) => {
                    let is_carried = carried.contains_key(step);
                    assert_eq!(
                        error.may_have_taken_effect, is_carried,
                        "step {step}: {error}"
                    );
                    let kinds = [StoreErrorKind::TimedOut, StoreErrorKind::Unreachable];
                    assert!(kinds.contains(&error.kind), "step {step}: {error}");
                }
            }
        }
    }
}

fn reply(step_number: u64) -> Reply {
    Reply::Held(Held {
        fence: Some(Fence::new(step_number)),
        slot: None,
        block: Block::ONE,
        queued: 0,
    })
}

#[test]
fn each_step_is_answered_once_in_every_schedule() {
    explore(4_000, || async {
        let scene = Scene::begin();
        let connection = spawn(scene.clone().connection());
        let sweeper = spawn(scene.clone().sweeper());
        for caller in 0..CALLERS {
            let scene = scene.clone();
            spawn(async move { scene.push(caller * CYCLES * 2) });
        }
        scene.all_answered.notified().await;
        scene.queue.close();
        connection.await.unwrap();
        sweeper.await.unwrap();
        scene.check();
    });
}

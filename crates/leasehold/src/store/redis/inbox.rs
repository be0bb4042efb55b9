//! The steps on their way to one server, from whoever sends them to whoever runs the connection. Must never leave one without
//! an answer, nor call what may have been carried out a refusal.
//!
//! # Invariants
//!
//! - **I1** A step is answered once: by the server, by its time limit, or when its connection is given up.
//! - **I2** Only the runner whose turn it is takes steps out, so that two connections never carry the same one.
//! - **I3** No lock is held while an answer is delivered: its taker may send the next step at once.

mod boarding;
mod ending;
mod others;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{LockName, Step};
use tokio::sync::Notify;

pub(super) use self::ending::End;
use self::others::Others;
use self::sweep::Watch;
use super::form::{Contended, Kind};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Answer, Done};

/// Up to so many steps go at once, whatever their kinds. More go kind by kind, so that the server has one batch to work on
/// while the client works on the answers to another.
const FEW: usize = 16;

/// What is known of the connection.
#[derive(Debug, Clone)]
pub(super) enum State {
    Dialing,
    /// It works, and wakes are heard on it, or not.
    Up {
        listening: bool,
    },
    Down(StoreError),
}

/// A step and who waits for its answer.
struct Item {
    /// When it came, among all.
    number: u64,
    name: LockName,
    step: Step,
    waiting: Waiting,
}

struct Waiting {
    /// Taken when it is answered (I1).
    done: Option<Done>,
    until: Moment,
    limit: Duration,
}

/// Steps to send together.
pub(super) struct Batch {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) steps: Vec<(LockName, Step)>,
}

/// What the runner is to do.
pub(super) enum Call {
    /// One batch of each kind at most.
    Send(Vec<Batch>),
    /// A request was not answered in time: is the server there?
    Check,
    /// The server has become a replica: leave it.
    Leave,
}

struct Inner {
    state: State,
    /// Waiting to be sent, one line for each kind, so that each fills batches of its own.
    lines: [VecDeque<Item>; Kind::ALL.len()],
    next_item: u64,
    contended: Contended,
    under_way: HashMap<u64, (Kind, Vec<Waiting>)>,
    next_batch: u64,
    /// A request was not answered in time.
    silent: bool,
    /// It answered a request that is no step as a replica does.
    demoted: bool,
    others: Others,
    /// When the runner was called to give a sign of life.
    called_at: Option<Moment>,
    /// Before then no time limit passes.
    soonest: Option<Moment>,
    watch: Watch,
}

/// The steps on their way.
pub(super) struct Inbox {
    shown: String,
    inner: Mutex<Inner>,
    /// Who runs the connection; another number means that it is somebody else now.
    turn: AtomicU64,
    /// What `state` says of it, to be read without the lock.
    listening: AtomicBool,
    /// The runner is on an executor that is not ours.
    near: AtomicBool,
    /// Rings for the runner.
    pub(super) bell: Notify,
    /// Rings for the sweeper.
    pub(super) alarm: Notify,
}

impl Inbox {
    /// Whose turn it is at first.
    pub(super) const FIRST_TURN: u64 = 0;

    const CLOSED: u64 = u64::MAX;

    pub(super) fn new(shown: String) -> Self {
        Self {
            shown,
            inner: Mutex::new(Inner {
                state: State::Dialing,
                lines: Default::default(),
                next_item: 0,
                contended: Contended::default(),
                under_way: HashMap::new(),
                next_batch: 0,
                silent: false,
                demoted: false,
                others: Others::default(),
                called_at: None,
                soonest: None,
                watch: Watch::default(),
            }),
            turn: AtomicU64::new(Self::FIRST_TURN),
            listening: AtomicBool::new(false),
            near: AtomicBool::new(true),
            bell: Notify::new(),
            alarm: Notify::new(),
        }
    }

    /// Takes a step in; fails it at once while the server is known to be down, so that nothing hangs on it.
    pub(super) fn push(
        &self,
        name: &LockName,
        step: Step,
        done: Done,
        now: Moment,
        limit: Duration,
    ) {
        let until = now.after(limit);
        let refused = {
            let mut inner = self.lock();
            if inner.watch.begin(limit) {
                self.alarm.notify_one();
            }
            if let State::Down(error) = &inner.state {
                Some((error.clone(), done))
            } else {
                let number = inner.next_item;
                let kind = inner.kind(name, &step);
                inner.next_item += 1;
                let waiting = Waiting {
                    done: Some(done),
                    until,
                    limit,
                };
                inner.lines[kind as usize].push_back(Item {
                    number,
                    name: name.clone(),
                    step,
                    waiting,
                });
                inner.soonest = Some(inner.soonest.map_or(until, |soonest| soonest.min(until)));
                None
            }
        };
        match refused {
            Some((error, done)) => done.answer(Err(error)),
            None => self.bell.notify_one(),
        }
    }

    /// What the runner of this turn is to do next; a batch only if there is `room` for one.
    pub(super) async fn call(&self, turn: u64, room: bool) -> Call {
        loop {
            let rung = self.bell.notified();
            if let Some(call) = self.take(turn, room) {
                return call;
            }
            if self.is_turn(turn) {
                rung.await;
            } else {
                // The ring that told it may be heard here: then the runner has to look up by itself.
                tokio::task::yield_now().await;
            }
        }
    }

    fn take(&self, turn: u64, room: bool) -> Option<Call> {
        let mut inner = self.lock();
        if !self.is_turn(turn) {
            return None;
        }
        inner.called_at = None;
        if std::mem::take(&mut inner.demoted) {
            return Some(Call::Leave);
        }
        if std::mem::take(&mut inner.silent) {
            return Some(Call::Check);
        }
        if !room || !matches!(inner.state, State::Up { .. }) {
            return None;
        }
        let waiting: usize = inner.lines.iter().map(VecDeque::len).sum();
        let batches = if waiting > FEW {
            inner.board_next().into_iter().collect()
        } else {
            let kinds = Kind::ALL.into_iter();
            kinds
                .filter_map(|kind| inner.board(kind, u64::MAX))
                .collect::<Vec<_>>()
        };
        (!batches.is_empty()).then_some(Call::Send(batches))
    }

    /// What the answers to these steps say of their locks.
    pub(super) fn learn(&self, steps: &[(LockName, Step)], answers: &[Answer]) {
        let mut inner = self.lock();
        for ((name, _), answer) in steps.iter().zip(answers) {
            if let Ok(reply) = answer {
                inner.contended.learn(name, reply);
            }
        }
    }

    /// Others wait for the lock with this key, or not.
    pub(super) fn is_contended(&self, key: &str, contended: bool) {
        self.lock().contended.is(key, contended);
    }

    /// The answers to a batch, in its order.
    pub(super) fn answer(&self, id: u64, answers: impl IntoIterator<Item = Answer>) {
        let Some((_, waiting)) = self.lock().under_way.remove(&id) else {
            // The connection was given up.
            return;
        };
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            if let Some(done) = waiting.done {
                done.answer(answer);
            }
        }
    }

    /// What is known of the connection of this turn; `tell` others. What waits for one that cannot be had is answered.
    pub(super) fn set(&self, turn: u64, state: State, tell: impl FnOnce()) {
        let mut refused = Vec::new();
        let error = {
            let mut inner = self.lock();
            if !self.is_turn(turn) {
                return;
            }
            tell();
            (inner.silent, inner.demoted) = (false, false);
            if let State::Down(_) = &state {
                for line in &mut inner.lines {
                    refused.extend(line.drain(..).filter_map(|item| item.waiting.done));
                }
            }
            let listening = matches!(state, State::Up { listening: true });
            self.listening.store(listening, Ordering::Relaxed);
            inner.state = state;
            match &inner.state {
                State::Down(error) => error.clone(),
                State::Dialing | State::Up { .. } => return,
            }
        };
        for done in refused {
            done.answer(Err(error.clone()));
        }
    }

    /// What errors call the server.
    pub(super) fn label(&self) -> &str {
        &self.shown
    }

    /// Whether the runner is on an executor that is not ours.
    pub(super) fn is_near(&self) -> bool {
        self.near.load(Ordering::SeqCst)
    }

    /// The runner is on an executor of ours, which nobody blocks.
    pub(super) fn is_at_home(&self) {
        self.near.store(false, Ordering::SeqCst);
    }

    /// Whether wakes are heard.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        let inner = self.lock();
        self.turn.store(Self::CLOSED, Ordering::SeqCst);
        drop(inner);
        self.bell.notify_one();
        self.alarm.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_turn(Self::CLOSED)
    }

    /// Whose turn it is.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::SeqCst)
    }

    pub(super) fn is_turn(&self, turn: u64) -> bool {
        self.turn() == turn
    }

    /// Whether somebody else runs the connection by now.
    pub(super) fn has_moved_since(&self, turn: u64) -> bool {
        !self.is_turn(turn) && !self.is_closed()
    }

    /// Whether there is no answer because of that.
    pub(super) fn has_lost<T>(&self, answer: &Result<T, StoreError>, turn: u64) -> bool {
        let lost = |error: &StoreError| {
            error.may_have_taken_effect && error.kind == StoreErrorKind::Unreachable
        };
        answer.as_ref().is_err_and(lost) && self.has_moved_since(turn)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is under the lock moves steps from one place to another; none is lost if it panics.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

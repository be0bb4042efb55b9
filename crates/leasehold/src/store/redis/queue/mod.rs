//! The submission queue: the steps on their way to one server, from whoever sends them to whoever runs the connection. Must never
//! leave one without an answer, nor call what may have been carried out a refusal.
//!
//! | module | what it is for |
//! |---|---|
//! | [`contents`] | what waits, what is under way, and what is known of the connection |
//! | [`batching`] | which steps go together, and when |
//! | [`sweep`] | time limits |
//! | [`disconnect`] | why a connection was given up, and what it carried |
//!
//! # Invariants
//!
//! - **I1** A step is answered once: by the server, by its time limit, or when its connection is given up.
//! - **I2** A step is taken out once, so that two connections never carry the same one.
//! - **I3** No lock is held while an answer is delivered: its taker may send the next step at once.

mod batching;
mod contents;
mod disconnect;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{LockName, Step};
use tokio::sync::Notify;

pub(super) use self::contents::ConnectionState;
use self::contents::{Contents, PendingReply, QueuedStep};
pub(super) use self::disconnect::DisconnectReason;
use self::sweep::SweepResult;
use super::codec::form::{Batch, Kind};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::store::contract::{Answer, Done};

/// Up to so many steps go at once, whatever their kinds. More go kind by kind, so that the server has one batch to work on
/// while the client works on the answers to another.
const FEW: usize = 16;

/// What the runner is to do.
pub(super) enum RunnerAction {
    /// One batch of each kind at most.
    Send(Vec<Batch>),
    /// A request was not answered in time: is the server there?
    CheckLiveness,
    /// The server has become a replica: leave it.
    Reconnect,
}

/// The steps on their way to one server.
pub(super) struct SubmissionQueue {
    shown: String,
    contents: Mutex<Contents>,
    closed: AtomicBool,
    /// What `state` says of it, to be read without the lock.
    listening: AtomicBool,
    /// Rings for the runner.
    pub(super) runner_wake: Notify,
    /// Rings for the sweeper.
    pub(super) sweeper_wake: Notify,
}

impl SubmissionQueue {
    pub(super) fn new(shown: String) -> Self {
        Self {
            shown,
            contents: Mutex::default(),
            closed: AtomicBool::new(false),
            listening: AtomicBool::new(false),
            runner_wake: Notify::new(),
            sweeper_wake: Notify::new(),
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
            let mut contents = self.lock();
            if let ConnectionState::Down(error) = &contents.state {
                Some((error.clone(), done))
            } else {
                let sequence = contents.next_sequence;
                let kind = contents.kind(name, &step);
                contents.next_sequence += 1;
                let waiting = PendingReply {
                    done: Some(done),
                    until,
                    limit,
                };
                contents.queues[kind as usize].push_back(QueuedStep {
                    sequence,
                    name: name.clone(),
                    step,
                    waiting,
                });
                if contents.sweep_at.is_none_or(|sweep_at| until < sweep_at) {
                    contents.sweep_at = Some(until);
                    self.sweeper_wake.notify_one();
                }
                None
            }
        };
        match refused {
            Some((error, done)) => done.answer(Err(error)),
            None => self.runner_wake.notify_one(),
        }
    }

    /// What the runner is to do next; a batch only if there is `has_room` for one.
    pub(super) async fn next_action(&self, has_room: bool) -> RunnerAction {
        loop {
            let woken = self.runner_wake.notified();
            if let Some(action) = self.take(has_room) {
                return action;
            }
            woken.await;
        }
    }

    fn take(&self, has_room: bool) -> Option<RunnerAction> {
        let mut contents = self.lock();
        if std::mem::take(&mut contents.demoted) {
            return Some(RunnerAction::Reconnect);
        }
        if std::mem::take(&mut contents.silent) {
            return Some(RunnerAction::CheckLiveness);
        }
        if !has_room || !matches!(contents.state, ConnectionState::Up { .. }) {
            return None;
        }
        let waiting: usize = contents.queues.iter().map(VecDeque::len).sum();
        let batches = if waiting > FEW {
            contents.next_batch().into_iter().collect()
        } else {
            let kinds = Kind::ALL.into_iter();
            kinds
                .filter_map(|kind| contents.take_batch(kind, u64::MAX))
                .collect::<Vec<_>>()
        };
        (!batches.is_empty()).then_some(RunnerAction::Send(batches))
    }

    /// What the answers to these steps say of their locks.
    pub(super) fn learn(&self, steps: &[(LockName, Step)], answers: &[Answer]) {
        let mut contents = self.lock();
        for ((name, _), answer) in steps.iter().zip(answers) {
            if let Ok(reply) = answer {
                contents.contended.learn(name, reply);
            }
        }
    }

    /// Others wait for the lock with this key, or not.
    pub(super) fn set_contended(&self, key: &str, contended: bool) {
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

    /// What is known of the connection; `tell` others. What waits for one that cannot be had is answered.
    pub(super) fn set(&self, state: ConnectionState, tell: impl FnOnce()) {
        let mut refused = Vec::new();
        let error = {
            let mut contents = self.lock();
            tell();
            (contents.silent, contents.demoted) = (false, false);
            if let ConnectionState::Down(_) = &state {
                for queue in &mut contents.queues {
                    refused.extend(queue.drain(..).filter_map(|item| item.waiting.done));
                }
            }
            let listening = matches!(state, ConnectionState::Up { listening: true });
            self.listening.store(listening, Ordering::Relaxed);
            contents.state = state;
            match &contents.state {
                ConnectionState::Down(error) => error.clone(),
                ConnectionState::Connecting | ConnectionState::Up { .. } => return,
            }
        };
        for done in refused {
            done.answer(Err(error.clone()));
        }
    }

    /// The connection is given up; `tell` others. What it carried is unknown.
    pub(super) fn disconnect(&self, why: DisconnectReason, tell: impl FnOnce()) {
        let mut contents = self.lock();
        tell();
        self.listening.store(false, Ordering::Relaxed);
        let unanswered = contents.disconnect();
        drop(contents);
        let (kind, detail) = why.describe();
        for done in unanswered {
            let error = StoreError::new(&self.shown, kind, detail).unknown();
            done.answer(Err(error));
        }
    }

    /// Looks at the time limits.
    pub(super) fn sweep(&self, now: Moment) -> SweepResult {
        let mut contents = self.lock();
        let swept = contents.sweep(now, &self.shown);
        let is_silent = contents.silent;
        drop(contents);
        if is_silent {
            self.runner_wake.notify_one();
        }
        swept
    }

    /// A request that is no step was not answered in time.
    pub(super) fn report_silent(&self) {
        self.lock().silent = true;
        self.runner_wake.notify_one();
    }

    /// The server said to a request that is no step that it takes no writes.
    pub(super) fn report_demoted(&self) {
        self.lock().demoted = true;
        self.runner_wake.notify_one();
    }

    /// What errors call the server.
    pub(super) fn label(&self) -> &str {
        &self.shown
    }

    /// Whether wakes are heard.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Whether there is a connection that works.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.lock().state, ConnectionState::Up { .. })
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.runner_wake.notify_one();
        self.sweeper_wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // What is under the lock moves steps from one place to another; none is lost if it panics.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The submission queue: hands steps from their callers to the runner of a connection, and the answers back.
//!
//! | module | what it is for |
//! |---|---|
//! | [`contents`] | the queued steps, the steps in flight, and the state of the connection |
//! | [`batching`] | which steps go together, and when |
//! | [`sweep`] | time limits |
//! | [`disconnect`] | why a connection ended, and the fate of its steps |
//!
//! # Invariants
//!
//! - **SQ1** A step is answered once: by the server, by its time limit, or when its connection is given up. A step that
//!   may have taken effect is never reported as refused.
//! - **SQ2** A step is taken out once, so that two connections never carry it.
//! - **SQ3** No lock is held while an answer is delivered: the caller may send the next step at once.

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

/// Up to this many steps are sent at once, of all kinds. More steps are sent kind by kind, so that the server
/// works on one batch while the client works on the answers to another.
const FEW: usize = 16;

/// The next action of the runner.
pub(super) enum RunnerAction {
    /// Send these batches: at most one of each kind.
    Send(Vec<Batch>),
    /// A request timed out: check whether the server still answers.
    CheckLiveness,
    /// The server has become a replica: leave it and connect again.
    Reconnect,
}

/// The steps on their way to one server.
pub(super) struct SubmissionQueue {
    shown: String,
    contents: Mutex<Contents>,
    closed: AtomicBool,
    /// A copy of `ConnectionState::Up { listening }`, readable without the lock.
    listening: AtomicBool,
    /// Wakes the runner.
    pub(super) runner_wake: Notify,
    /// Wakes the sweeper.
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

    /// Queues a step. Fails it at once while the server is known to be down.
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

    /// Waits for the next action of the runner. Batches are sent only if there is room for one.
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

    /// Learns from the answers to these steps whether their locks have other waiters.
    pub(super) fn learn(&self, steps: &[(LockName, Step)], answers: &[Answer]) {
        let mut contents = self.lock();
        for ((name, _), answer) in steps.iter().zip(answers) {
            if let Ok(reply) = answer {
                contents.contended.learn(name, reply);
            }
        }
    }

    /// Records whether the lock with this key has other waiters.
    pub(super) fn set_contended(&self, key: &str, contended: bool) {
        self.lock().contended.is(key, contended);
    }

    /// Delivers the answers to a batch, in its order.
    pub(super) fn answer(&self, id: u64, answers: impl IntoIterator<Item = Answer>) {
        let Some((_, waiting)) = self.lock().under_way.remove(&id) else {
            // The connection was given up before.
            return;
        };
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            if let Some(done) = waiting.done {
                done.answer(answer);
            }
        }
    }

    /// Sets the state of the connection, and calls `tell` under the lock. If the server is down, fails all queued
    /// steps.
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

    /// Gives the connection up, and calls `tell` under the lock. The outcome of its steps in flight is unknown.
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

    /// Ends the steps whose time limit has passed.
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

    /// An out-of-band request timed out.
    pub(super) fn report_silent(&self) {
        self.lock().silent = true;
        self.runner_wake.notify_one();
    }

    /// The server refused an out-of-band request because it is read-only.
    pub(super) fn report_demoted(&self) {
        self.lock().demoted = true;
        self.runner_wake.notify_one();
    }

    /// The name of the server in error messages.
    pub(super) fn label(&self) -> &str {
        &self.shown
    }

    /// True if the connection is subscribed to wakes.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// True if there is a working connection.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.lock().state, ConnectionState::Up { .. })
    }

    /// Stops the runner and the sweeper.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.runner_wake.notify_one();
        self.sweeper_wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // Code under the lock only moves steps from one place to another; a panic loses none.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

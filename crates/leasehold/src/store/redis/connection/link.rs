//! The connection to one server, for whoever sends over it. Must never keep a caller waiting beyond its time limit.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::{LockName, Step};
use redis::RedisResult;
use tokio::sync::watch;

use super::line::{Line, Up};
use super::placement::Placement;
use super::plan::Plan;
use super::runner::run;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Done, Listener, Notice};
use crate::store::redis::address::Address;
use crate::store::redis::fault::classify;
use crate::store::redis::queue::SubmissionQueue;
use crate::store::redis::scripts::Scripts;
use crate::store::redis::wake;

/// The connection to one node.
pub(in crate::store::redis) struct Link {
    plan: Arc<Plan>,
    line: watch::Receiver<Line>,
}

impl Link {
    pub(in crate::store::redis) fn open(
        address: Address,
        attach: Attach,
        scripts: Arc<Scripts>,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
    ) -> Self {
        let (status, line) = watch::channel(Line::Dialing);
        let plan = Arc::new_cyclic(|plan: &Weak<Plan>| Plan {
            queue: SubmissionQueue::new(address.to_string()),
            address,
            channel: wake::channel(attach.client),
            listener: hearing(plan.clone(), attach.listener),
            tracks: attach.keeps_values,
            clock,
            limit,
            scripts,
            line: status,
            last: Mutex::default(),
            placement: Placement::new(),
        });
        let runner = plan.clone();
        let run = move || run(runner.clone());
        plan.placement.run(tasks, plan.clock.clone(), run);
        tasks.spawn_aside(sweep(plan.clone()));
        Self { plan, line }
    }

    /// What errors call the server.
    pub(in crate::store::redis) fn label(&self) -> &str {
        self.plan.queue.label()
    }

    /// Sends a step; the answer comes within `limit`.
    pub(in crate::store::redis) fn send(
        &self,
        name: &LockName,
        step: Step,
        done: Done,
        limit: Duration,
    ) {
        let now = self.plan.clock.now();
        self.plan.queue.push(name, step, done, now, limit);
    }

    /// The clock that its limits are kept by.
    #[cfg(feature = "cache")]
    pub(in crate::store::redis) fn clock(&self) -> &Clock {
        &self.plan.clock
    }

    /// Whether the server's messages are heard.
    pub(in crate::store::redis) fn is_listening(&self) -> bool {
        self.plan.queue.is_listening()
    }

    /// Waits for the first connection, or why there is none.
    pub(in crate::store::redis) async fn ready(&self) -> Result<(), StoreError> {
        // The dial has a limit of its own.
        self.up(self.plan.limit * 2).await.map(drop)
    }

    /// Sends a request that is no step over the present connection and awaits the answer, for at most `limit` in all.
    pub(in crate::store::redis) async fn call<T>(
        &self,
        limit: Duration,
        request: impl AsyncFnOnce(&Up) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let Plan { clock, queue, .. } = &*self.plan;
        let begun = clock.now();
        let up = self.up(limit).await?;
        let left = limit.saturating_sub(clock.now().since(begun));
        match clock.within(left, request(&up)).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                let (error, in_step) = classify(self.label(), &error);
                if error.kind == StoreErrorKind::ReadOnly {
                    queue.is_demoted();
                } else if !in_step {
                    queue.is_silent();
                }
                Err(error)
            }
            None => {
                queue.is_silent();
                let detail = format!("waited {limit:.1?}");
                Err(StoreError::new(self.label(), StoreErrorKind::TimedOut, detail).unknown())
            }
        }
    }

    /// The present connection; fails at once while the server is known to be down, so that nothing hangs on it.
    async fn up(&self, limit: Duration) -> Result<Up, StoreError> {
        let mut line = self.line.clone();
        let settled = line.wait_for(|line| !matches!(line, Line::Dialing));
        let settled = self.plan.clock.within(limit, settled).await;
        match settled.map(|line| line.map(|line| line.clone())) {
            Some(Ok(Line::Up(up))) => Ok(up),
            Some(Ok(Line::Down(error))) => Err(error),
            Some(Ok(Line::Dialing)) | None => Err(StoreError::new(
                self.label(),
                StoreErrorKind::TimedOut,
                format!("still connecting after {limit:.1?}"),
            )),
            Some(Err(_)) => Err(StoreError::closed()),
        }
    }
}

/// A listener that remembers which locks others want: their next steps go the long way at once.
fn hearing(plan: Weak<Plan>, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let said = match &notice {
            Notice::Wanted { key, .. } => Some((key, true)),
            Notice::Granted { key, wake } => Some((key, wake.queued > 0)),
            _ => None,
        };
        if let Some(((key, contended), plan)) = said.zip(plan.upgrade()) {
            plan.queue.is_contended(key, contended);
        }
        listener(notice);
    })
}

impl Drop for Link {
    fn drop(&mut self) {
        self.plan.queue.close();
    }
}

/// Sees to it that time limits are kept.
async fn sweep(plan: Arc<Plan>) {
    while !plan.queue.is_closed() {
        let swept = plan.queue.sweep(plan.clock.now());
        let next = swept.next;
        swept.tell();
        let alarm = plan.queue.alarm.notified();
        match next {
            Some(next) => tokio::select! {
                () = alarm => {}
                () = plan.clock.sleep_until(next) => {}
            },
            None => alarm.await,
        }
    }
}

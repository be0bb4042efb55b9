//! The handle to the connection of one server. Each call ends within its time limit.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::{LockName, Step};
use redis::RedisResult;
use tokio::sync::watch;

use super::context::ConnectionContext;
use super::current::{Connected, CurrentConnection};
use super::placement::Placement;
use super::runner::run;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Done, Listener, Notice};
use crate::store::redis::address::Address;
use crate::store::redis::fault::classify;
use crate::store::redis::queue::SubmissionQueue;
use crate::store::redis::scripts::Scripts;
use crate::store::redis::seats::Seat;
use crate::store::redis::wake;

/// The connection to one server, as its users see it. Dropping it closes the connection.
pub(in crate::store::redis) struct ConnectionHandle {
    context: Arc<ConnectionContext>,
    current: watch::Receiver<CurrentConnection>,
}

impl ConnectionHandle {
    pub(in crate::store::redis) fn open(
        address: Address,
        attach: Attach,
        scripts: Arc<Scripts>,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
        seat: Option<Seat>,
    ) -> Self {
        let (status, current) = watch::channel(CurrentConnection::Connecting);
        let context = Arc::new_cyclic(|context: &Weak<ConnectionContext>| ConnectionContext {
            queue: SubmissionQueue::new(address.to_string()),
            address,
            channel: wake::channel(attach.client),
            listener: contention_listener(context.clone(), attach.listener),
            clock,
            limit,
            scripts,
            current: status,
            last: Mutex::default(),
            // A connection with a seat is one of several.
            placement: Placement::new(seat.is_none()),
            seat,
        });
        let runner = context.clone();
        let run = move || run(runner.clone());
        // Spins and ticks are about the threads of this host, whatever clock the leases have.
        context.placement.run(tasks, Clock::system(), run);
        tasks.spawn_aside(sweep(context.clone()));
        Self { context, current }
    }

    /// The name of the server in error messages.
    pub(in crate::store::redis) fn label(&self) -> &str {
        self.context.queue.label()
    }

    /// Submits a step. The answer comes within `limit`.
    pub(in crate::store::redis) fn send(
        &self,
        name: &LockName,
        step: Step,
        done: Done,
        limit: Duration,
    ) {
        let now = self.context.clock.now();
        self.context.queue.push(name, step, done, now, limit);
    }

    /// The clock that measures the time limits.
    #[cfg(feature = "entries")]
    pub(in crate::store::redis) fn clock(&self) -> &Clock {
        &self.context.clock
    }

    /// True if the connection is subscribed to the client's channel.
    pub(in crate::store::redis) fn is_listening(&self) -> bool {
        self.context.queue.is_listening()
    }

    /// Waits for the first connection, or returns why there is none.
    pub(in crate::store::redis) async fn ready(&self) -> Result<(), StoreError> {
        // Each attempt to connect has a time limit already.
        self.connected(self.context.limit * 2).await.map(drop)
    }

    /// Sends an out-of-band request over the current connection and waits for the reply, for at most `limit` in all.
    pub(in crate::store::redis) async fn call<T>(
        &self,
        limit: Duration,
        request: impl AsyncFnOnce(&Connected) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let ConnectionContext { clock, queue, .. } = &*self.context;
        let begun = clock.now();
        let connected = self.connected(limit).await?;
        let left = limit.saturating_sub(clock.now().since(begun));
        match clock.within(left, request(&connected)).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                let (error, in_step) = classify(self.label(), &error);
                if error.kind == StoreErrorKind::ReadOnly {
                    queue.report_demoted();
                } else if !in_step {
                    queue.report_silent();
                }
                Err(error)
            }
            None => {
                queue.report_silent();
                let detail = format!("waited {limit:.1?}");
                Err(StoreError::new(self.label(), StoreErrorKind::TimedOut, detail).unknown())
            }
        }
    }

    /// Returns the current connection. Fails at once while the server is known to be down.
    async fn connected(&self, limit: Duration) -> Result<Connected, StoreError> {
        let mut current = self.current.clone();
        let settled = current.wait_for(|current| !matches!(current, CurrentConnection::Connecting));
        let settled = self.context.clock.within(limit, settled).await;
        match settled.map(|current| current.map(|current| current.clone())) {
            Some(Ok(CurrentConnection::Up(connected))) => Ok(connected),
            Some(Ok(CurrentConnection::Down(error))) => Err(error),
            Some(Ok(CurrentConnection::Connecting)) | None => Err(StoreError::new(
                self.label(),
                StoreErrorKind::TimedOut,
                format!("still connecting after {limit:.1?}"),
            )),
            Some(Err(_)) => Err(StoreError::closed()),
        }
    }
}

/// Wraps a listener. Remembers which locks have other waiters, so that their next steps use the long form at once.
fn contention_listener(context: Weak<ConnectionContext>, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let said = match &notice {
            Notice::Wanted { key, .. } => Some((key, true)),
            Notice::Granted { key, wake } => Some((key, wake.queued > 0)),
            _ => None,
        };
        if let Some(((key, contended), context)) = said.zip(context.upgrade()) {
            context.queue.set_contended(key, contended);
        }
        listener(notice);
    })
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.context.queue.close();
    }
}

/// Ends the steps whose time limit has passed, until the queue is closed.
async fn sweep(context: Arc<ConnectionContext>) {
    while !context.queue.is_closed() {
        let swept = context.queue.sweep(context.clock.now());
        let next = swept.next;
        swept.answer();
        let woken = context.queue.sweeper_wake.notified();
        match next {
            Some(next) => tokio::select! {
                () = woken => {}
                () = context.clock.sleep_until(next) => {}
            },
            None => woken.await,
        }
    }
}

//! Runs the connection: connects, sends queued steps, delivers the answers, and reconnects.
//!
//! redis-rs multiplexes requests over one connection. It does not notice a peer that has stopped answering, and does
//! not subscribe again after a reconnect. Therefore:
//!
//! - If a request times out, the runner sends PING. Without a reply, it discards the connection.
//! - If the server has become a replica, the runner reconnects at once, since the host name may now lead to another
//!   server.
//! - After each new connection, all waiters ask again, since wakes may have been missed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::{FutureExt, future};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value, cmd};

use super::batch_limit::BatchLimit;
use super::context::ConnectionContext;
use super::current::{Connected, CurrentConnection};
use super::dial::{EstablishedConnection, dial};
use super::in_flight::{CompletedBatch, InFlight};
use super::login::login;
use super::refusal::silent;
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;
use crate::store::redis::codec::form::Batch;
use crate::store::redis::codec::words::POLL_ONLY;
use crate::store::redis::fault::classify;
use crate::store::redis::queue::{ConnectionState, DisconnectReason, RunnerAction};

/// How long a server may take to answer PING after a request timed out.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection must have lived for the next attempt to be made without a longer pause.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// The longest pause after a connection that broke soon. It is no longer than the poll that replaces a missed wake,
/// because waiters and leases whose renewal failed ask again after each new connection.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Runs the connection until the queue is closed.
pub(super) async fn run(context: Arc<ConnectionContext>) {
    let runner = Runner { context: &context };
    let mut work = std::pin::pin!(runner.run());
    future::poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        // Checked after the poll: the work may have consumed the notification.
        if context.queue.is_closed() {
            std::task::Poll::Ready(())
        } else {
            polled
        }
    })
    .await;
}

struct Runner<'a> {
    context: &'a Arc<ConnectionContext>,
}

impl Runner<'_> {
    async fn run(&self) {
        let context = self.context;
        let first = Duration::from_millis(20);
        let mut refused = Backoff::new(first, Duration::from_secs(1));
        let mut cut = Backoff::new(first, MAX_RECONNECT_PAUSE);
        if context.queue.is_up() {
            // The previous future that ran this connection panicked.
            self.disconnect(DisconnectReason::Lost);
        }
        loop {
            let begun = context.clock.now();
            match self.meanwhile(self.dial()).await {
                Ok(established) => {
                    refused.reset();
                    let end = self.serve(established).await;
                    self.disconnect(end);
                    if context.clock.now().since(begun) >= MIN_LIFETIME {
                        cut.reset();
                    } else {
                        self.meanwhile(context.clock.sleep(cut.pause())).await;
                    }
                }
                Err(error) => {
                    let current = CurrentConnection::Down(error.clone());
                    let down = ConnectionState::Down(error);
                    context.queue.set(down, || context.publish(current));
                    self.meanwhile(context.clock.sleep(refused.pause())).await;
                }
            }
        }
    }

    /// Makes a connection. The source of credentials and the server each have a time limit.
    async fn dial(&self) -> Result<EstablishedConnection, StoreError> {
        let ConnectionContext {
            address,
            clock,
            limit,
            ..
        } = &**self.context;
        let settings = login(address, clock, *limit).await?;
        let (handshake, listener) = (self.context.handshake(), &self.context.listener);
        let dialing = dial(
            handshake,
            &settings,
            listener,
            &self.context.placement,
            clock,
        );
        let established = clock.within(*limit, dialing).await;
        let established = established.unwrap_or_else(|| Err(silent(address, Some(*limit))))?;
        self.context.take_seat(established.agreed.server.as_ref())?;
        Ok(established)
    }

    /// Gives the connection up. The outcome of its steps is unknown. The listener is told first.
    fn disconnect(&self, why: DisconnectReason) {
        let context = self.context;
        if let Some(seat) = &context.seat {
            seat.leave();
        }
        (context.listener)(Notice::Cut(why.describe().1));
        context
            .queue
            .disconnect(why, || context.publish(CurrentConnection::Connecting));
    }

    /// Answers requests of the queue while `what` goes on.
    async fn meanwhile<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return done,
                // No connection is in use that could be checked.
                _ = self.context.queue.next_action(false) => {}
            }
        }
    }

    /// Sends steps and delivers answers until the connection is given up. Returns the reason.
    async fn serve(&self, established: EstablishedConnection) -> DisconnectReason {
        let context = self.context;
        let EstablishedConnection {
            connection,
            mut driver,
            agreed,
        } = established;
        let listening = agreed.listening;
        let current = CurrentConnection::Up(Connected {
            connection: connection.clone(),
            #[cfg(feature = "entries")]
            time: Arc::default(),
            #[cfg(feature = "entries")]
            tracking: Arc::default(),
        });
        let state = ConnectionState::Up { listening };
        context.queue.set(state, || context.publish(current));
        if let Some(how) = context.record_server(agreed.server.as_ref()) {
            (context.listener)(Notice::Replaced(how));
        }
        (context.listener)(Notice::Reconnected);
        let channel = if listening {
            context.channel.as_str()
        } else {
            POLL_ONLY
        };
        let resend = |batch| {
            self.execute(connection.clone(), channel, batch, true)
                .boxed()
        };
        let mut in_flight = InFlight::new(resend);
        let mut completed = VecDeque::new();
        let mut check: Option<BoxFuture<'_, bool>> = None;
        let mut limiter = BatchLimit::default();
        let end = loop {
            let room = in_flight.has_room(limiter.batches());
            tokio::select! {
                biased;
                Some(batch) = in_flight.next(), if !in_flight.is_empty() => {
                    limiter.answered(context.clock.now());
                    completed.extend(batch);
                }
                action = context.queue.next_action(room) => match action {
                    RunnerAction::Send(batches) => {
                        if in_flight.is_empty() {
                            limiter.sent(context.clock.now());
                        }
                        for batch in batches {
                            let executing = self.execute(connection.clone(), channel, batch, false);
                            in_flight.begin(executing.boxed());
                        }
                    }
                    RunnerAction::CheckLiveness if check.is_none() => {
                        check = Some(self.is_alive(connection.clone()).boxed());
                    }
                    RunnerAction::CheckLiveness => {}
                    RunnerAction::Reconnect => break DisconnectReason::Lost,
                },
                Some(alive) = OptionFuture::from(check.as_mut()), if check.is_some() => {
                    if !alive {
                        break DisconnectReason::Silent;
                    }
                    check = None;
                }
                // Placed here so that new batches are sent before answers are delivered: the server works meanwhile.
                () = &mut driver => break DisconnectReason::Lost,
                () = future::ready(()), if !completed.is_empty() => {
                    if !completed.pop_front().is_none_or(|batch| self.deliver(batch)) {
                        break DisconnectReason::Lost;
                    }
                }
            }
        };
        // The replies that arrived together with the end of the connection.
        while let Some(batch) = in_flight.next_by_now() {
            completed.push_back(batch);
        }
        for batch in completed {
            self.deliver(batch);
        }
        end
    }

    /// Sends a batch and waits for its answers. `resend` is true if the server refused the batch before.
    async fn execute(
        &self,
        mut connection: MultiplexedConnection,
        channel: &str,
        batch: Batch,
        resend: bool,
    ) -> CompletedBatch {
        let scripts = &self.context.scripts;
        let mut is_reliable = true;
        let replies = if resend {
            Some(scripts.run_batch(&mut connection, channel, &batch).await)
        } else {
            scripts.try_batch(&mut connection, channel, &batch).await
        };
        let answers = replies.map(|replies| match replies {
            Ok(replies) => replies
                .into_iter()
                .map(|reply| reply.map_err(|error| self.map_error(&error, &mut is_reliable)))
                .collect(),
            Err(error) => vec![Err(self.map_error(&error, &mut is_reliable)); batch.steps.len()],
        });
        CompletedBatch {
            batch,
            answers,
            is_reliable,
        }
    }

    /// Delivers the answers. Returns whether the connection can still be used.
    fn deliver(&self, completed: CompletedBatch) -> bool {
        let answers = completed.answers.unwrap_or_default();
        self.context.queue.learn(&completed.batch.steps, &answers);
        self.context.queue.answer(completed.batch.id, answers);
        completed.is_reliable
    }

    fn map_error(&self, error: &RedisError, is_reliable: &mut bool) -> StoreError {
        let (error, in_step) = classify(&self.context.address.to_string(), error);
        *is_reliable &= in_step && error.kind != StoreErrorKind::ReadOnly;
        error
    }

    /// Any reply is a sign of life: a busy server answers PING with an error.
    async fn is_alive(&self, mut connection: MultiplexedConnection) -> bool {
        let ping = cmd("PING");
        let answer = self
            .context
            .clock
            .within(PING_TIMEOUT, ping.query_async::<Value>(&mut connection))
            .await;
        answer.is_some_and(|answer| answer.map_or_else(|error| classify("", &error).1, |_| true))
    }
}

//! Runs the connection: dials, sends what waits in the submission queue, hears the answers, and dials again. Must never keep a
//! connection that does not answer.
//!
//! redis-rs gives a connection that carries any number of requests at once; it does not notice a peer that fell silent and
//! does not subscribe again. So:
//!
//! - a request without an answer makes the runner ask for one sign of life; without that, the connection is discarded;
//! - a server that has become a replica is left at once, since the name may lead to another one now;
//! - after every new connection all waiters are told to ask again, since wakes may have been missed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::{FutureExt, future};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value, cmd};

use super::dial::{Dialled, dial};
use super::flights::{Flights, Landed};
use super::line::{Line, Up};
use super::login::login;
use super::pace::Pace;
use super::plan::Plan;
use super::refusal::silent;
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Notice;
use crate::store::redis::codec::form::Batch;
use crate::store::redis::codec::words::DEAF;
use crate::store::redis::fault::classify;
use crate::store::redis::queue::{Call, End, State};

/// How long a server may take to give a sign of life after it left a request unanswered.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// How long a connection must have lived for the next dial not to be delayed further.
const LIVED: Duration = Duration::from_secs(1);

/// The longest pause after a connection that came up and did not live: no more than the poll that a missed wake costs. Those who wait
/// and leases that could not be renewed ask at each new one.
const CUT_PAUSE: Duration = Duration::from_millis(250);

/// Runs the connection until the queue is closed.
pub(super) async fn run(plan: Arc<Plan>) {
    let runner = Runner { plan: &plan };
    let mut work = std::pin::pin!(runner.run());
    future::poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        // Looked at afterwards: the work may have taken the bell for another call.
        if plan.queue.is_closed() {
            std::task::Poll::Ready(())
        } else {
            polled
        }
    })
    .await;
}

struct Runner<'a> {
    plan: &'a Arc<Plan>,
}

impl Runner<'_> {
    async fn run(&self) {
        let plan = self.plan;
        let first = Duration::from_millis(20);
        let mut refused = Backoff::new(first, Duration::from_secs(1));
        let mut cut = Backoff::new(first, CUT_PAUSE);
        if plan.queue.is_up() {
            // Another one ran this connection, and panicked.
            self.give_up(End::Lost);
        }
        loop {
            let begun = plan.clock.now();
            match self.meanwhile(self.dial()).await {
                Ok(dialled) => {
                    refused.reset();
                    let end = self.pump(dialled).await;
                    self.give_up(end);
                    if plan.clock.now().since(begun) >= LIVED {
                        cut.reset();
                    } else {
                        self.meanwhile(plan.clock.sleep(cut.pause())).await;
                    }
                }
                Err(error) => {
                    let line = Line::Down(error.clone());
                    let down = State::Down(error);
                    plan.queue.set(down, || plan.tell(line));
                    self.meanwhile(plan.clock.sleep(refused.pause())).await;
                }
            }
        }
    }

    /// Makes a connection; the source of credentials and the server have a limit each.
    async fn dial(&self) -> Result<Dialled, StoreError> {
        let Plan {
            address,
            clock,
            limit,
            ..
        } = &**self.plan;
        let settings = login(address, clock, *limit).await?;
        let (greeting, listener) = (self.plan.greeting(), &self.plan.listener);
        let dialling = dial(greeting, &settings, listener, &self.plan.placement);
        let dialled = clock.within(*limit, dialling).await;
        dialled.unwrap_or_else(|| Err(silent(address, Some(*limit))))
    }

    /// What the connection carried is unknown; whoever relies on what it said is told before.
    fn give_up(&self, why: End) {
        let plan = self.plan;
        (plan.listener)(Notice::Cut(why.told().1));
        plan.queue.give_up(why, || plan.tell(Line::Dialing));
    }

    /// Answers calls while something else goes on.
    async fn meanwhile<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return done,
                // Nothing is under way that could be checked.
                _ = self.plan.queue.call(false) => {}
            }
        }
    }

    /// Carries steps and answers until the connection is to be discarded: why.
    async fn pump(&self, dialled: Dialled) -> End {
        let plan = self.plan;
        let Dialled {
            connection,
            mut driver,
            greeted,
        } = dialled;
        let (listening, tracking) = (greeted.listening, greeted.tracking);
        let line = Line::Up(Up {
            connection: connection.clone(),
            tracking,
            #[cfg(feature = "cache")]
            time: Arc::default(),
        });
        let up = State::Up { listening };
        plan.queue.set(up, || plan.tell(line));
        if let Some(how) = plan.meet(greeted.server.as_ref()) {
            (plan.listener)(Notice::Replaced(how));
        }
        (plan.listener)(Notice::Reconnected);
        let channel = if listening {
            plan.channel.as_str()
        } else {
            DEAF
        };
        let in_full = |batch| self.carry(connection.clone(), channel, batch, true).boxed();
        let mut flights = Flights::new(in_full);
        let mut landed = VecDeque::new();
        let mut check: Option<BoxFuture<'_, bool>> = None;
        let mut pace = Pace::default();
        let end = loop {
            let room = flights.has_room(pace.batches());
            tokio::select! {
                biased;
                Some(batch) = flights.next(), if !flights.is_empty() => {
                    pace.answered(plan.clock.now());
                    landed.extend(batch);
                }
                call = plan.queue.call(room) => match call {
                    Call::Send(batches) => {
                        if flights.is_empty() {
                            pace.sent(plan.clock.now());
                        }
                        for batch in batches {
                            let carrying = self.carry(connection.clone(), channel, batch, false);
                            flights.begin(carrying.boxed());
                        }
                    }
                    Call::Check if check.is_none() => {
                        check = Some(self.is_alive(connection.clone()).boxed());
                    }
                    Call::Check => {}
                    Call::Leave => break End::Lost,
                },
                Some(alive) = OptionFuture::from(check.as_mut()), if check.is_some() => {
                    if !alive {
                        break End::Silent;
                    }
                    check = None;
                }
                // Here, so that what was just begun is sent before answers are delivered: the server works meanwhile.
                () = &mut driver => break End::Lost,
                () = future::ready(()), if !landed.is_empty() => {
                    if !landed.pop_front().is_none_or(|batch| self.deliver(batch)) {
                        break End::Lost;
                    }
                }
            }
        };
        // Answers that came with the end of the connection.
        while let Some(batch) = flights.next_by_now() {
            landed.push_back(batch);
        }
        for batch in landed {
            self.deliver(batch);
        }
        end
    }

    /// Sends a batch and waits for its answers; `in_full` if the server refused it before.
    async fn carry(
        &self,
        mut connection: MultiplexedConnection,
        channel: &str,
        batch: Batch,
        in_full: bool,
    ) -> Landed {
        let scripts = &self.plan.scripts;
        let mut fit = true;
        let replies = if in_full {
            Some(scripts.run_batch(&mut connection, channel, &batch).await)
        } else {
            scripts.try_batch(&mut connection, channel, &batch).await
        };
        let answers = replies.map(|replies| match replies {
            Ok(replies) => replies
                .into_iter()
                .map(|reply| reply.map_err(|error| self.judge(&error, &mut fit)))
                .collect(),
            Err(error) => vec![Err(self.judge(&error, &mut fit)); batch.steps.len()],
        });
        Landed {
            batch,
            answers,
            fit,
        }
    }

    /// Whether the connection can be relied on further.
    fn deliver(&self, landed: Landed) -> bool {
        let answers = landed.answers.unwrap_or_default();
        self.plan.queue.learn(&landed.batch.steps, &answers);
        self.plan.queue.answer(landed.batch.id, answers);
        landed.fit
    }

    fn judge(&self, error: &RedisError, fit: &mut bool) -> StoreError {
        let (error, in_step) = classify(&self.plan.address.to_string(), error);
        *fit &= in_step && error.kind != StoreErrorKind::ReadOnly;
        error
    }

    /// An error is a sign of life too: a busy server answers PING with one.
    async fn is_alive(&self, mut connection: MultiplexedConnection) -> bool {
        let ping = cmd("PING");
        let answer = self
            .plan
            .clock
            .within(SIGN_OF_LIFE, ping.query_async::<Value>(&mut connection))
            .await;
        answer.is_some_and(|answer| answer.map_or_else(|error| classify("", &error).1, |_| true))
    }
}

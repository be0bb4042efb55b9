//! One connection that is always being looked after. Must never keep one that does not answer, nor report "not done" for
//! a request that may have been.
//!
//! redis-rs gives a connection that carries any number of requests at once; it does not notice a peer that fell silent and
//! does not subscribe again. So a task of ours dials, subscribes, watches, discards and dials again:
//!
//! - a request without an answer makes it ask for one sign of life; without that, the connection is discarded;
//! - a server that has become a replica is left at once, since the name may lead to another one now;
//! - after every new connection all waiters are told to ask again, since wakes may have been missed.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisResult, Value, cmd};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::fault::classify;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::{Listener, Notice};
use leasehold_core::Owner;

/// How long a server may take to give a sign of life after it left a request unanswered.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// How long a connection must have lived for the next dial not to be delayed further.
const LIVED: Duration = Duration::from_secs(1);

/// The longest pause after a connection that came up and did not live: no more than the poll that a missed wake costs.
const CUT_PAUSE: Duration = Duration::from_millis(250);

/// Requests that may be under way at once before the next one waits its turn.
const PIPELINE: usize = 1024;

/// A connection that works.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) connection: MultiplexedConnection,
    /// Whether wakes are heard on it; not if the user may not subscribe.
    pub(super) listening: bool,
    number: u64,
}

#[derive(Clone)]
enum Status {
    Dialing,
    Up(Up),
    Down(StoreError),
}

/// What went wrong on which connection.
enum Trouble {
    /// It is closed, out of step, or leads to a replica.
    Useless(u64),
    /// A request was not answered in time.
    Silent(u64),
}

/// The connection to one node.
pub(super) struct Link {
    shown: String,
    clock: Clock,
    limit: Duration,
    status: watch::Receiver<Status>,
    troubles: mpsc::UnboundedSender<Trouble>,
    _supervisor: AbortOnDropHandle<()>,
}

impl Link {
    pub(super) fn open(
        address: Address,
        channel: String,
        listener: Listener,
        clock: Clock,
        tasks: &Tasks,
        limit: Duration,
    ) -> Self {
        let (troubles, reported) = mpsc::unbounded_channel();
        let (status, seen) = watch::channel(Status::Dialing);
        let shown = address.to_string();
        let supervisor = Supervisor {
            address,
            channel,
            listener,
            clock: clock.clone(),
            limit,
            status,
            troubles: troubles.clone(),
        };
        let supervisor = tasks.spawn_until_dropped(supervisor.run(reported));
        Self {
            shown,
            clock,
            limit,
            status: seen,
            troubles,
            _supervisor: supervisor,
        }
    }

    /// What errors call the server.
    pub(super) fn label(&self) -> &str {
        &self.shown
    }

    /// Waits for the first connection, or why there is none.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        // The dial has a limit of its own.
        self.up(self.limit * 2).await.map(drop)
    }

    /// Sends a request over the present connection and awaits the answer, for at most `limit` in all.
    pub(super) async fn call(
        &self,
        limit: Duration,
        request: impl AsyncFnOnce(&Up) -> RedisResult<Value>,
    ) -> Result<Value, StoreError> {
        let begun = self.clock.now();
        let up = self.up(limit).await?;
        let left = limit.saturating_sub(self.clock.now().since(begun));
        match self.clock.within(left, request(&up)).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                let (error, in_step) = classify(&self.shown, &error);
                if !in_step || error.kind == StoreErrorKind::ReadOnly {
                    self.report(Trouble::Useless(up.number));
                }
                Err(error)
            }
            None => {
                self.report(Trouble::Silent(up.number));
                let detail = format!("waited {limit:.1?}");
                Err(StoreError::new(&self.shown, StoreErrorKind::TimedOut, detail).unknown())
            }
        }
    }

    /// An answer of a form that no script gives.
    pub(super) fn protocol_error(&self, value: &Value) -> StoreError {
        StoreError::new(
            &self.shown,
            StoreErrorKind::Protocol,
            format!("a script answered {value:?}"),
        )
        .unknown()
    }

    /// The present connection; fails at once while the server is known to be down, so that nothing hangs on it.
    async fn up(&self, limit: Duration) -> Result<Up, StoreError> {
        let mut status = self.status.clone();
        let settled = self
            .clock
            .within(
                limit,
                status.wait_for(|status| !matches!(status, Status::Dialing)),
            )
            .await;
        match settled.map(|status| status.map(|status| status.clone())) {
            Some(Ok(Status::Up(up))) => Ok(up),
            Some(Ok(Status::Down(error))) => Err(error),
            Some(Ok(Status::Dialing)) | None => Err(StoreError::new(
                &self.shown,
                StoreErrorKind::TimedOut,
                format!("still connecting after {limit:.1?}"),
            )),
            Some(Err(_)) => Err(StoreError::closed()),
        }
    }

    fn report(&self, trouble: Trouble) {
        // Fails only when the supervisor is gone with its runtime.
        drop(self.troubles.send(trouble));
    }
}

struct Supervisor {
    address: Address,
    channel: String,
    listener: Listener,
    clock: Clock,
    limit: Duration,
    status: watch::Sender<Status>,
    troubles: mpsc::UnboundedSender<Trouble>,
}

impl Supervisor {
    async fn run(self, mut troubles: mpsc::UnboundedReceiver<Trouble>) {
        let first = Duration::from_millis(20);
        let mut refused = Backoff::new(first, Duration::from_secs(1));
        let mut cut = Backoff::new(first, CUT_PAUSE);
        for number in 1.. {
            let begun = self.clock.now();
            let dialled = self.clock.within(self.limit, self.dial(number)).await;
            match dialled.unwrap_or_else(|| Err(self.silent())) {
                Ok(up) => {
                    refused.reset();
                    self.status.send_replace(Status::Up(up.clone()));
                    (self.listener)(Notice::Reconnected);
                    self.look_after(&up, &mut troubles).await;
                    self.status.send_replace(Status::Dialing);
                    if self.clock.now().since(begun) >= LIVED {
                        cut.reset();
                    } else {
                        self.clock.sleep(cut.pause()).await;
                    }
                }
                Err(error) => {
                    self.status.send_replace(Status::Down(error));
                    self.clock.sleep(refused.pause()).await;
                }
            }
        }
    }

    /// Connects, makes sure that it is a primary, and listens for wakes.
    async fn dial(&self, number: u64) -> Result<Up, StoreError> {
        if self.address.is_tls() {
            // rustls has no default provider of its own; a program that chose one keeps it.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let (listener, troubles) = (self.listener.clone(), self.troubles.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            // Each request has a limit of its own.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(move |push: PushInfo| {
                receive(&push, number, &listener, &troubles);
                Ok::<(), redis::aio::SendError>(())
            });
        let client =
            Client::open(self.address.info().clone()).map_err(|error| self.refusal(&error))?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| self.refusal(&error))?;
        self.check_role(&mut connection).await?;
        // Who may not subscribe polls, and says so in the queue.
        let listening = connection.subscribe(&self.channel).await.is_ok();
        Ok(Up {
            connection,
            listening,
            number,
        })
    }

    /// A replica would answer reads from the past and refuse writes. A user who may not ask learns it by READONLY.
    async fn check_role(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let Ok(Value::Array(role)) = cmd("ROLE").query_async::<Value>(connection).await else {
            return Ok(());
        };
        let replica = |word: &Value| matches!(word, Value::BulkString(bytes) if bytes == b"slave" || bytes == b"replica");
        if !role.first().is_some_and(replica) {
            return Ok(());
        }
        let of = |at: usize| {
            role.get(at)
                .and_then(|value| redis::from_redis_value_ref::<String>(value).ok())
                .unwrap_or_default()
        };
        let detail = format!(
            "it is a replica of {}:{}; connect to the primary",
            of(1),
            of(2)
        );
        Err(StoreError::new(
            self.address.to_string(),
            StoreErrorKind::ReadOnly,
            detail,
        ))
    }

    /// Returns when the connection is to be discarded.
    async fn look_after(&self, up: &Up, troubles: &mut mpsc::UnboundedReceiver<Trouble>) {
        while let Some(trouble) = troubles.recv().await {
            match trouble {
                Trouble::Useless(number) if number == up.number => return,
                Trouble::Silent(number) if number == up.number => {
                    // An error is a sign of life too: a busy server answers PING with one.
                    let mut connection = up.connection.clone();
                    let answer = self
                        .clock
                        .within(
                            SIGN_OF_LIFE,
                            cmd("PING").query_async::<Value>(&mut connection),
                        )
                        .await;
                    let alive = answer.is_some_and(|answer| {
                        answer.map_or_else(|error| classify("", &error).1, |_| true)
                    });
                    if !alive {
                        return;
                    }
                }
                Trouble::Useless(_) | Trouble::Silent(_) => {}
            }
        }
    }

    /// Why a dial failed; nothing was asked for, so nothing can have taken effect.
    fn refusal(&self, error: &redis::RedisError) -> StoreError {
        let (mut refusal, _) = classify(&self.address.to_string(), error);
        if refusal.kind == StoreErrorKind::TimedOut {
            return self.silent();
        }
        if error.is_connection_dropped() && !error.is_connection_refusal() {
            refusal.detail += "; is it the right port, and with or without TLS?";
        }
        refusal.may_have_taken_effect = false;
        refusal
    }

    fn silent(&self) -> StoreError {
        let detail = format!(
            "it said nothing for {:.1?}; is it the right host and port, and with or without TLS?",
            self.limit
        );
        StoreError::new(self.address.to_string(), StoreErrorKind::TimedOut, detail)
    }
}

/// Takes what the server sends unasked.
fn receive(
    push: &PushInfo,
    number: u64,
    listener: &Listener,
    troubles: &mpsc::UnboundedSender<Trouble>,
) {
    match push.kind {
        // Fails only when the supervisor is gone.
        PushKind::Disconnection => drop(troubles.send(Trouble::Useless(number))),
        PushKind::Message => {
            if let Some(Value::BulkString(payload)) = push.data.get(1)
                && let Some(notice) = parse_wake(payload)
            {
                listener(notice);
            }
        }
        _ => {}
    }
}

/// `<fence> <owner token> <key>`: the key last, since it may hold spaces.
fn parse_wake(payload: &[u8]) -> Option<Notice> {
    let mut words = std::str::from_utf8(payload).ok()?.splitn(3, ' ');
    let (_fence, token, key) = (words.next()?, words.next()?, words.next()?);
    Some(Notice::Granted {
        key: key.to_owned(),
        owner: Owner::parse(token)?,
    })
}

//! Sends a batch of steps as one request, which costs the server a fraction of several requests.
//!
//! The steps keep their order, and the failure of one step does not affect the others.

use futures_util::future::join_all;
use leasehold_core::{LockName, Reply, Step};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};

use crate::store::redis::codec::encode::{script_of, write};
use crate::store::redis::codec::form::{Batch, Kind, MOST};
use crate::store::redis::codec::reply;
use crate::store::redis::fault::is_denied;
use crate::store::redis::scripts::{Scripts, is_unknown};

/// How a script is sent.
#[derive(Debug, Clone, Copy)]
enum SendForm {
    /// By its hash only.
    Hash,
    /// By its hash, or by its text if the server does not know the hash.
    Any,
}

impl Scripts {
    /// Sends a batch by its hash in one request. Returns `None` if the server refused the request as a whole and
    /// [`run_batch`](Self::run_batch) can send it in another form.
    pub(super) async fn try_batch(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        batch: &Batch,
    ) -> Option<RedisResult<Vec<RedisResult<Reply>>>> {
        let is_refused =
            |error: &RedisError| is_unknown(error) || batch.steps.len() > 1 && is_denied(error);
        let request = self.request(channel, batch);
        let answer = request.send(connection, &batch.steps, SendForm::Hash);
        Some(answer.await).filter(|answer| !answer.as_ref().is_err_and(is_refused))
    }

    /// Executes the steps of a batch in order and atomically. The steps may concern one lock or several. Redis Cluster,
    /// which would require all keys in one slot, is not supported. Scripts publish wakes for waiters on `channel`,
    /// which is [`POLL_ONLY`](crate::store::redis::codec::words::POLL_ONLY) if the connection is not subscribed.
    ///
    /// If the short form does not fit a step, the step has changed nothing and is sent again in the long form. Other
    /// steps may run in between.
    ///
    /// An inner error concerns one step. The outer error concerns the whole request: the server refused it and executed
    /// no step, or the reply was lost and the outcome is unknown.
    pub(in crate::store::redis) async fn run_batch(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        batch: &Batch,
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        let request = self.request(channel, batch);
        request.send_in_full(connection, &batch.steps).await
    }

    const fn request<'a>(&'a self, channel: &'a str, batch: &Batch) -> BatchRequest<'a> {
        BatchRequest {
            scripts: self,
            channel,
            kind: batch.kind,
        }
    }
}

/// Steps of one kind, sent in one request.
#[derive(Clone, Copy)]
struct BatchRequest<'a> {
    scripts: &'a Scripts,
    channel: &'a str,
    kind: Kind,
}

impl BatchRequest<'_> {
    async fn send_in_full(
        self,
        connection: &mut MultiplexedConnection,
        steps: &[(LockName, Step)],
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        match self.send(connection, steps, SendForm::Any).await {
            // Redis checks the permissions for all keys at once, so this error does not tell which step was denied.
            Err(error) if steps.len() > 1 && is_denied(&error) => {
                let alone = |step| {
                    let mut connection = connection.clone();
                    async move {
                        let reply = self.send(&mut connection, step, SendForm::Any).await;
                        reply.unwrap_or_else(|error| vec![Err(error)])
                    }
                };
                // The connection keeps their order, and no other batch is in flight (`in_flight`, F1).
                let replies = join_all(steps.chunks(1).map(alone)).await;
                Ok(replies.into_iter().flatten().collect())
            }
            answer => answer,
        }
    }

    /// Sends the steps. Sends those that the short form does not fit again in the long form.
    async fn send(
        self,
        connection: &mut MultiplexedConnection,
        steps: &[(LockName, Step)],
        form: SendForm,
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        let value = self.ask(connection, steps, form).await?;
        let replies = if self.kind.is_long() {
            reply::decode(&value, steps.iter().map(|(name, _)| name))
                .map(|replies| replies.into_iter().map(Some).collect())
        } else {
            reply::decode_short(&value, steps)
        };
        let replies: Vec<Option<RedisResult<Reply>>> = replies.ok_or_else(|| {
            let detail = format!("the answer of a script: {value:?}");
            RedisError::from((
                ErrorKind::UnexpectedReturnType,
                "has an unknown form",
                detail,
            ))
        })?;
        let left: Vec<_> = (steps.iter().zip(&replies))
            .filter(|(_, reply)| reply.is_none())
            .map(|(step, _)| step.clone())
            .collect();
        let mut rest = if left.is_empty() {
            Vec::new()
        } else {
            let kind = self.kind.long();
            let long = BatchRequest { kind, ..self };
            match Box::pin(long.send_in_full(connection, &left)).await {
                Ok(rest) => rest,
                Err(error) => vec![Err(error); left.len()],
            }
        }
        .into_iter();
        let filled = replies
            .into_iter()
            .map(|reply| reply.or_else(|| rest.next()));
        filled.collect::<Option<_>>().ok_or_else(|| {
            (
                ErrorKind::UnexpectedReturnType,
                "a script has not answered a step",
            )
                .into()
        })
    }

    async fn ask(
        self,
        connection: &mut MultiplexedConnection,
        steps: &[(LockName, Step)],
        form: SendForm,
    ) -> RedisResult<Value> {
        debug_assert!(steps.len() <= MOST, "{} steps", steps.len());
        let script = script_of(self.kind, steps);
        let counts = self.scripts.counts();
        let write = |command: &mut Cmd| {
            let counters = self.scripts.counters;
            write(self.kind, counters, &counts, self.channel, steps, command);
        };
        match form {
            SendForm::Hash => self.scripts.run_known(script, connection, write).await,
            SendForm::Any => self.scripts.run(script, connection, write).await,
        }
    }
}

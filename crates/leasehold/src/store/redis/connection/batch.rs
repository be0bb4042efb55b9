//! Several steps in one request, which costs the server a fraction of several requests. Must never change the order of
//! steps, nor let the failure of one be another's.

use futures_util::future::join_all;
use leasehold_core::{LockName, Reply, Step};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};

use crate::error::StoreErrorKind;
use crate::store::redis::codec::encode::{script_of, write};
use crate::store::redis::codec::form::{Batch, Kind, MOST};
use crate::store::redis::codec::reply;
use crate::store::redis::fault::classify;
use crate::store::redis::scripts::{Scripts, is_unknown};

/// How a script is sent.
#[derive(Debug, Clone, Copy)]
enum SendForm {
    /// By its hash only.
    Hash,
    /// In whatever form the server takes it.
    Any,
}

impl Scripts {
    /// [`run_batch`](Self::run_batch) in one request; `None` if the server refused it as a whole, and `run_batch` knows another way.
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

    /// Carries out the steps of a batch in their order, at one moment. The locks may be different ones or the same; there is no
    /// cluster as yet, where they would have to share a slot. Waiters are told on `channel`, which is
    /// [`POLL_ONLY`](crate::store::redis::codec::words::POLL_ONLY) when the connection does not listen.
    ///
    /// A step that the short form does not fit has changed nothing, and goes again in the long one: other steps may come between.
    ///
    /// An error inside of the answer is that step's own. The outer one is about the whole request: that it was refused
    /// (and then none of the steps was carried out) or lost (and then nobody knows).
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

/// Steps of one kind, to be sent together.
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
            // Redis checks the permission for all keys at once, so this says nothing of each step.
            Err(error) if steps.len() > 1 && is_denied(&error) => {
                let alone = |step| {
                    let mut connection = connection.clone();
                    async move {
                        let reply = self.send(&mut connection, step, SendForm::Any).await;
                        reply.unwrap_or_else(|error| vec![Err(error)])
                    }
                };
                // The connection keeps their order, and nothing else is under way (`in_flight`, F1).
                let replies = join_all(steps.chunks(1).map(alone)).await;
                Ok(replies.into_iter().flatten().collect())
            }
            answer => answer,
        }
    }

    /// Sends the steps, and those again in the long form that the short one does not fit.
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
            RedisError::from((ErrorKind::UnexpectedReturnType, "has no known form", detail))
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
        filled
            .collect::<Option<_>>()
            .ok_or_else(|| (ErrorKind::UnexpectedReturnType, "a script left a step out").into())
    }

    async fn ask(
        self,
        connection: &mut MultiplexedConnection,
        steps: &[(LockName, Step)],
        form: SendForm,
    ) -> RedisResult<Value> {
        debug_assert!(steps.len() <= MOST, "{} steps", steps.len());
        let script = script_of(self.kind, steps);
        let write = |command: &mut Cmd| write(self.kind, self.channel, steps, command);
        match form {
            SendForm::Hash => self.scripts.run_known(script, connection, write).await,
            SendForm::Any => self.scripts.run(script, connection, write).await,
        }
    }
}

/// Before the script began, or at a command of it.
fn is_denied(refusal: &RedisError) -> bool {
    classify("", refusal).0.kind == StoreErrorKind::Denied
}

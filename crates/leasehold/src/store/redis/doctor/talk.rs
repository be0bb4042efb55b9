//! One connection to the examined server. A server that refuses a request has answered it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, PushInfo, PushKind, RedisError, RedisResult, Value,
};
use tokio::sync::mpsc;

use super::super::address::Address;
use super::super::connection::dial;
use super::super::connection::login::login;
use super::super::connection::refusal::silent;
use super::super::fault::classify;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};

/// The reply to a request; a refusal is a reply.
pub(super) type Answered<T> = Result<RedisResult<T>, StoreError>;

/// A connection to ask over.
#[derive(Clone)]
pub(super) struct Talk {
    pub(super) connection: MultiplexedConnection,
    pub(super) clock: Clock,
    /// How long an answer may take.
    pub(super) limit: Duration,
    label: String,
}

/// A connection and its parts.
pub(super) struct Conversation {
    pub(super) talk: Talk,
    /// The task that moves its bytes; it ends with the connection.
    pub(super) driver: BoxFuture<'static, ()>,
    /// The messages of its channels.
    pub(super) messages: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// Connects, to whatever it is: a replica and a sentinel are judged like all others.
pub(super) async fn open(
    address: &Address,
    clock: &Clock,
    limit: Duration,
) -> Result<Conversation, StoreError> {
    let (sender, messages) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message
                && let Some(Value::BulkString(payload)) = push.data.get(1)
            {
                // Fails after the receiver is gone.
                drop(sender.send(payload.clone()));
            }
            Ok::<(), redis::aio::SendError>(())
        });
    let settings = login(address, clock, limit).await?;
    let (connection, driver) = clock
        .within(limit, dial::open(address, &settings, config, None, clock))
        .await
        .ok_or_else(|| silent(address, Some(limit)))??;
    let talk = Talk {
        connection,
        clock: clock.clone(),
        limit,
        label: address.to_string(),
    };
    Ok(Conversation {
        talk,
        driver,
        messages,
    })
}

impl Talk {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// That there is none, and the connection is of no use any more.
    pub(super) async fn ask<T: FromRedisValue>(&self, request: &Cmd) -> Answered<T> {
        let mut connection = self.connection.clone();
        let answer = request.query_async::<Value>(&mut connection);
        let value = self.answered(answer).await?;
        // An answer of another form is none.
        Ok(value.and_then(|value| T::from_redis_value(value).map_err(RedisError::from)))
    }

    /// Waits for the answer to a request that was made elsewhere.
    pub(super) async fn answered<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Answered<T> {
        match self.clock.within(self.limit, answer).await {
            None => {
                let detail = format!("waited {:.1?}", self.limit);
                Err(StoreError::new(
                    &self.label,
                    StoreErrorKind::TimedOut,
                    detail,
                ))
            }
            Some(Err(error)) => match classify(&self.label, &error) {
                (mut lost, false) => {
                    lost.may_have_taken_effect = false;
                    Err(lost)
                }
                (_, true) => Ok(Err(error)),
            },
            Some(answer) => Ok(answer),
        }
    }

    /// The same, of which only a real answer counts.
    pub(super) async fn told<T: FromRedisValue>(
        &self,
        request: &Cmd,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.ask(request).await?.ok())
    }
}

//! Making one connection that is fit for use. Must never hand out one that leads to a replica.
//!
//! A plain connection is driven by whoever runs it, in the same task: when that task ends, nothing more is sent. redis-rs
//! drives one over TLS in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, PushInfo, PushKind,
    RedisResult, Value, cmd,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;

use super::address::Address;
use super::fault::classify;
use super::notice;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Listener;

/// Requests that may be under way at once before the next one waits its turn.
const PIPELINE: usize = 1024;

/// A connection that works.
pub(super) struct Dialled {
    pub(super) connection: MultiplexedConnection,
    /// What moves its bytes; it ends when the connection does.
    pub(super) driver: BoxFuture<'static, ()>,
    /// Whether wakes are heard on it; not if the user may not subscribe.
    pub(super) listening: bool,
    /// Whether the server says on it what changes of what was looked at.
    pub(super) tracking: bool,
}

/// Connects, makes sure that it is a primary, and listens for wakes.
pub(super) async fn dial(
    address: &Address,
    channel: &str,
    listener: &Listener,
    tracks: bool,
) -> Result<Dialled, StoreError> {
    let hears = listener.clone();
    let ended = Arc::new(Notify::new());
    let ends = ended.clone();
    let config = AsyncConnectionConfig::new()
        // Whoever dials has a time limit, and each request has one of its own.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE)
        .set_push_sender(move |push: PushInfo| {
            match push.kind {
                PushKind::Disconnection => ends.notify_one(),
                PushKind::Message => {
                    if let Some(Value::BulkString(payload)) = push.data.get(1)
                        && let Some(notice) = notice::parse(payload)
                    {
                        hears(notice);
                    }
                }
                #[cfg(feature = "cache")]
                PushKind::Invalidate => hears(notice::changed(&push.data)),
                _ => {}
            }
            Ok::<(), redis::aio::SendError>(())
        });
    let (connection, driver) = open(address, config)
        .await
        .map_err(|error| refusal(address, &error))?;
    let mut driver = match driver {
        Some(driver) => driver,
        None => async move { ended.notified().await }.boxed(),
    };
    let greet = greet(address, connection, channel, tracks);
    let (connection, listening, tracking) = tokio::select! {
        greeted = greet => greeted?,
        () = &mut driver => return Err(closed(address)),
    };
    Ok(Dialled {
        connection,
        driver,
        listening,
        tracking,
    })
}

/// A connection, and what drives it unless redis-rs does.
pub(super) type Opened = (MultiplexedConnection, Option<BoxFuture<'static, ()>>);

/// Connects, without a look at what answers.
pub(super) async fn open(address: &Address, config: AsyncConnectionConfig) -> RedisResult<Opened> {
    match address.info().addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            Address::tune(&stream)?;
            over(address, stream, config).await
        }
        ConnectionAddr::Unix(path) => over(address, UnixStream::connect(path).await?, config).await,
        _ => {
            // rustls has no default provider of its own; a program that chose one keeps it.
            drop(rustls::crypto::ring::default_provider().install_default());
            let client = Client::open(address.info().clone().into_connection_info()?)?;
            let connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            Ok((connection, None))
        }
    }
}

async fn over(
    address: &Address,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: AsyncConnectionConfig,
) -> RedisResult<Opened> {
    let settings = address.info().redis_settings();
    let (connection, driver) =
        MultiplexedConnection::new_with_config(settings, stream, config).await?;
    Ok((connection, Some(driver.boxed())))
}

async fn greet(
    address: &Address,
    mut connection: MultiplexedConnection,
    channel: &str,
    tracks: bool,
) -> Result<(MultiplexedConnection, bool, bool), StoreError> {
    check_role(address, &mut connection).await?;
    // Who may not subscribe polls, and says so in the queue.
    let listening = connection.subscribe(channel).await.is_ok();
    // Only of what a look asks for: a lock's keys are none of its business. Where the user may not, the bound on what is kept is all
    // there is.
    let tracking = tracks && {
        let mut on = cmd("CLIENT");
        on.arg(&["TRACKING", "ON", "OPTIN"]);
        on.query_async::<Value>(&mut connection).await.is_ok()
    };
    Ok((connection, listening, tracking))
}

/// A replica would answer reads from the past and refuse writes. A user who may not ask learns it by READONLY.
async fn check_role(
    address: &Address,
    connection: &mut MultiplexedConnection,
) -> Result<(), StoreError> {
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
        address.to_string(),
        StoreErrorKind::ReadOnly,
        detail,
    ))
}

/// Why a dial failed; nothing was asked for, so nothing can have taken effect.
pub(super) fn refusal(address: &Address, error: &redis::RedisError) -> StoreError {
    let (mut refusal, _) = classify(&address.to_string(), error);
    if refusal.kind == StoreErrorKind::TimedOut {
        return silent(address, None);
    }
    if error.is_connection_dropped() && !error.is_connection_refusal() {
        refusal.detail += WRONG_DOOR;
    }
    refusal.may_have_taken_effect = false;
    refusal
}

const WRONG_DOOR: &str = "; is it the right port, and with or without TLS?";

pub(super) fn closed(address: &Address) -> StoreError {
    let detail = format!("it closed the connection{WRONG_DOOR}");
    StoreError::new(address.to_string(), StoreErrorKind::Unreachable, detail)
}

/// It let a dial wait for too long.
pub(super) fn silent(address: &Address, limit: Option<Duration>) -> StoreError {
    let waited = limit.map_or_else(String::new, |limit| format!(" for {limit:.1?}"));
    let detail =
        format!("it said nothing{waited}; is it the right host and port, and with or without TLS?");
    StoreError::new(address.to_string(), StoreErrorKind::TimedOut, detail)
}

//! Makes one connection that is fit for use: it leads to a primary.
//!
//! The runner polls the driver of a connection. When the runner ends, nothing more is sent.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, PushInfo, PushKind, RedisConnectionInfo, RedisResult,
    Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::handshake::{Handshake, HandshakeResult};
use super::placement::Placement;
use super::refusal::{closed, refusal};
#[cfg(feature = "tls")]
use super::tls;
use crate::error::StoreError;
use crate::store::contract::Listener;
use crate::store::redis::address::Address;
use crate::store::redis::wake;

/// Requests in flight at once. Further ones wait.
const PIPELINE: usize = 1024;

/// An established connection, its driver and the result of the handshake.
pub(super) struct EstablishedConnection {
    pub(super) connection: MultiplexedConnection,
    /// Moves the bytes of the connection. It ends when the connection does.
    pub(super) driver: BoxFuture<'static, ()>,
    pub(super) agreed: HandshakeResult,
}

/// Connects, checks that the server is a primary, and subscribes to wakes.
pub(super) async fn dial(
    handshake: Handshake<'_>,
    settings: &RedisConnectionInfo,
    listener: &Listener,
    placement: &Placement,
) -> Result<EstablishedConnection, StoreError> {
    let address = handshake.address;
    let hears = listener.clone();
    let config = AsyncConnectionConfig::new()
        // The caller of `dial` has a time limit, and so has each request.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE)
        .set_push_sender(move |push: PushInfo| {
            match push.kind {
                PushKind::Message => {
                    if let Some(Value::BulkString(payload)) = push.data.get(1)
                        && let Some(notice) = wake::parse(payload)
                    {
                        hears(notice);
                    }
                }
                #[cfg(feature = "cache")]
                PushKind::Invalidate => hears(wake::changed(&push.data)),
                _ => {}
            }
            Ok::<(), redis::aio::SendError>(())
        });
    let (mut connection, mut driver) = open(address, settings, config, Some(placement))
        .await
        .map_err(|error| refusal(address, &error))?;
    let agreed = tokio::select! {
        agreed = handshake.exchange(&mut connection) => agreed?,
        () = &mut driver => return Err(closed(address)),
    };
    Ok(EstablishedConnection {
        connection,
        driver,
        agreed,
    })
}

/// A connection and its driver.
pub(in crate::store::redis) type RawConnection = (MultiplexedConnection, BoxFuture<'static, ()>);

/// A stream that carries bytes both ways.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Connects without a check of the server. Without a placement, the current runtime does the work.
pub(in crate::store::redis) async fn open(
    address: &Address,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
    placement: Option<&Placement>,
) -> RedisResult<RawConnection> {
    let stream: Box<dyn Duplex> = match address.info().addr() {
        ConnectionAddr::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            match placement {
                Some(placement) => Box::new(placement.socket(stream.into_std()?)),
                None => Box::new(stream),
            }
        }
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            Address::tune(&stream)?;
            match placement {
                Some(placement) => Box::new(placement.socket(stream.into_std()?)),
                None => Box::new(stream),
            }
        }
        _ => {
            let kind = redis::ErrorKind::InvalidClientConfig;
            return Err((kind, "an address of an unknown kind").into());
        }
    };
    let stream = match address.info().addr() {
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, .. } => {
            Box::new(tls::over(stream, host, address.tls()).await?)
        }
        _ => stream,
    };
    let (connection, driver) =
        MultiplexedConnection::new_with_config(settings, stream, config).await?;
    Ok((connection, driver.boxed()))
}

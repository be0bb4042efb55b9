//! Makes one connection that is fit for use: it leads to a primary.
//!
//! The runner polls the driver of a connection. When the runner ends, nothing more is sent.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, PushInfo, PushKind, RedisConnectionInfo, RedisResult,
    Value,
};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::handshake::{Handshake, HandshakeResult};
use super::placement::Placement;
use super::refusal::{Duplex, LastWords, closed, refusal};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::store::contract::Listener;
use crate::store::redis::address::Address;
use crate::store::redis::wake;

/// Requests in flight at once. Further ones wait.
const PIPELINE: usize = 1024;

/// How long an address of a name may be silent before the next one is tried as well: the Connection Attempt Delay of RFC 8305.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

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
    clock: &Clock,
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
                #[cfg(feature = "entries")]
                PushKind::Invalidate => hears(wake::changed(&push.data)),
                _ => {}
            }
            Ok::<(), redis::aio::SendError>(())
        });
    let (mut connection, mut driver) =
        open(address, settings, config, Some(placement), clock).await?;
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

/// Connects without a check of the server. Without a placement, the current runtime does the work.
pub(in crate::store::redis) async fn open(
    address: &Address,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
    placement: Option<&Placement>,
    clock: &Clock,
) -> Result<RawConnection, StoreError> {
    let last_words = LastWords::default();
    let opened = async {
        let stream = last_words.of(stream(address, placement, clock).await?);
        let stream: Box<dyn Duplex> = match address.info().addr() {
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, .. } => {
                Box::new(address.tls().over(stream, host).await?)
            }
            _ => stream,
        };
        MultiplexedConnection::new_with_config(settings, stream, config).await
    };
    match opened.await {
        Ok((connection, driver)) => {
            last_words.end();
            Ok((connection, driver.boxed()))
        }
        Err(error) => Err(last_words.explain(refusal(address, &error))),
    }
}

async fn stream(
    address: &Address,
    placement: Option<&Placement>,
    clock: &Clock,
) -> RedisResult<Box<dyn Duplex>> {
    Ok(match address.info().addr() {
        ConnectionAddr::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            match placement {
                Some(placement) => Box::new(placement.socket(stream.into_std()?)),
                None => Box::new(stream),
            }
        }
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let addresses: Vec<_> = lookup_host((host.as_str(), *port)).await?.collect();
            let stream = first_of(in_turns(&addresses), TcpStream::connect, clock).await?;
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
    })
}

/// The addresses of a name, the two families by turns. The system's order says which family comes first (RFC 8305, section 4).
fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first = |address: &SocketAddr| address.is_ipv4() == addresses[0].is_ipv4();
    let (first, second): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(is_first);
    let mut seconds = second.into_iter();
    let mut turns = Vec::with_capacity(addresses.len());
    for address in first {
        turns.push(address);
        turns.extend(seconds.next());
    }
    turns.extend(seconds);
    turns
}

/// The first connection that is made. The next address is tried as soon as one fails, or has been silent for [`NEXT_ADDRESS`]
/// (RFC 8305, section 5).
///
/// # Errors
/// The error of the address that failed last.
async fn first_of<S, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
    clock: &Clock,
) -> io::Result<S>
where
    F: Future<Output = io::Result<S>>,
{
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut left = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.extend(left.next().map(&connect));
        let made = if left.len() == 0 {
            Some(attempts.next().await)
        } else {
            clock.within(NEXT_ADDRESS, attempts.next()).await
        };
        match made {
            Some(Some(Ok(stream))) => return Ok(stream),
            Some(Some(Err(error))) => failed = error,
            Some(None) => return Err(failed),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_and_the_systems_order_stays() {
        for (found, turns) in [
            (
                &["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"][..],
                &["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"][..],
            ),
            (
                &["1.1.1.1:1", "2.2.2.2:1", "[::1]:1"],
                &["1.1.1.1:1", "[::1]:1", "2.2.2.2:1"],
            ),
            (&["[::1]:1"], &["[::1]:1"]),
            (&[], &[]),
        ] {
            assert_eq!(in_turns(&addresses(found)), addresses(turns));
        }
    }

    /// What an address does to a connection.
    #[derive(Clone, Copy)]
    enum Host {
        Silent,
        Refuses,
        AnswersAfter(u64),
    }

    /// The address that wins, after how many milliseconds, and how many were tried.
    async fn race(hosts: &[Host]) -> (Result<u16, io::ErrorKind>, u128, u32) {
        let clock = Clock::virtual_time();
        let begun = clock.now();
        let tried = AtomicU32::new(0);
        let port = |number| u16::try_from(number).unwrap();
        let addresses = (0..hosts.len()).map(|host| SocketAddr::from(([127, 0, 0, 1], port(host))));
        let connect = async |address: SocketAddr| {
            tried.fetch_add(1, Ordering::Relaxed);
            match hosts[usize::from(address.port())] {
                Host::Silent => std::future::pending().await,
                Host::Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                Host::AnswersAfter(millis) => {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    Ok(address.port())
                }
            }
        };
        let won = first_of(addresses.collect(), connect, &clock).await;
        let won = won.map_err(|error| error.kind());
        (
            won,
            clock.now().since(begun).as_millis(),
            tried.into_inner(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_one_by_a_quarter_second() {
        use Host::{AnswersAfter, Refuses, Silent};
        assert_eq!(race(&[AnswersAfter(9), Silent]).await, (Ok(0), 9, 1));
        assert_eq!(race(&[Silent, AnswersAfter(9)]).await, (Ok(1), 259, 2));
        assert_eq!(
            race(&[Silent, Silent, AnswersAfter(9)]).await,
            (Ok(2), 509, 3)
        );
        // Both answer: the first one that does.
        assert_eq!(
            race(&[AnswersAfter(300), AnswersAfter(9)]).await,
            (Ok(1), 259, 2)
        );
        assert_eq!(
            race(&[AnswersAfter(300), AnswersAfter(90)]).await,
            (Ok(0), 300, 2)
        );
        // A refusal is known at once.
        assert_eq!(race(&[Refuses, AnswersAfter(9)]).await, (Ok(1), 9, 2));
        let refused = Err(io::ErrorKind::ConnectionRefused);
        assert_eq!(race(&[Refuses, Refuses]).await, (refused, 0, 2));
        assert_eq!(race(&[]).await.0, Err(io::ErrorKind::NotFound));
    }
}

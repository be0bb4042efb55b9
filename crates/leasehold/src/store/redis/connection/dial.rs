//! Makes one connection that is fit for use: it leads to a primary, and its user is logged in.
//!
//! No step was sent before a connection is fit, so no error of a failed attempt says that one may have taken effect. Such an error has the
//! server's own words if there are any, else a hint. If the source of credentials or the dial function fails, the error says so and does not blame the server.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{
    Cmd, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    Value, cmd, pipe,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::handshake::{Handshake, HandshakeResult};
use super::link::{Link, Wire};
use super::placement::Placement;
use crate::access::{Credentials, Duplex, Source};
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Listener;
use crate::store::redis::address::Address;
use crate::store::redis::address::quorum::QuorumAddress;
use crate::store::redis::fault::{is_forbidden, refusal, silent};
use crate::store::redis::pipeline::Flight;
use crate::store::redis::scripts::{Scripts, takes_no};

/// How long an address of a name may be silent before the next one is tried as well: the Connection Attempt Delay of RFC 8305.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// How soon a server that refuses a connection closes it.
const CLOSES_WITHIN: Duration = Duration::from_millis(100);

/// An established connection and the result of the handshake.
pub(super) type Established = (Link, Wire, HandshakeResult);

/// Where to connect, and what the connection is for.
#[derive(Clone, Copy)]
pub(crate) struct Dial<'a> {
    pub(crate) address: &'a Address,
    /// The time limit of the login and of what follows, each.
    pub(crate) limit: Duration,
    pub(crate) clock: &'a Clock,
    /// The scripts that will be sent.
    pub(crate) scripts: &'a Arc<Scripts>,
    /// Hears the notices of the server.
    pub(crate) listener: &'a Listener,
    /// Without one, the current runtime does the work.
    pub(crate) placement: Option<&'a Placement>,
}

impl Dial<'_> {
    /// Connects, checks that the server is a primary, and subscribes to wakes on this channel.
    pub(super) async fn establish(&self, channel: &str) -> Result<Established, StoreError> {
        let settings = self.credentials().await?;
        let dialing = async {
            let (mut link, mut wire) = self.connect(&settings).await?;
            let handshake = Handshake {
                address: self.address,
                scripts: self.scripts,
                channel,
            };
            let agreed = link.until(handshake.exchange(&mut wire)).await;
            let agreed = agreed.map_err(|error| refusal(self.address, &error))??;
            if !agreed.listening {
                link.hears_nothing();
            }
            Ok((link, wire, agreed))
        };
        self.in_time(dialing).await
    }

    /// Connects and logs in, to whatever server it is.
    pub(crate) async fn open(&self) -> Result<(Link, Wire), StoreError> {
        let settings = self.credentials().await?;
        self.in_time(self.connect(&settings)).await
    }

    /// Waits for what the server has to answer, for at most the limit.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = self.clock.within(self.limit, answer).await;
        answer.unwrap_or_else(|| Err(silent(self.address, Some(self.limit))))
    }

    async fn connect(&self, settings: &RedisConnectionInfo) -> Result<(Link, Wire), StoreError> {
        let (link, wire, protocol) = self.connect_one(settings, Protocol::Resp3).await?;
        if protocol == Protocol::Resp3 {
            return Ok((link, wire));
        }
        let (messages, subscribes, _) = self.connect_one(settings, protocol).await?;
        Ok(link.hears_by(wire, (messages, subscribes)))
    }

    /// Makes one connection, which speaks this protocol, or an older one if the server does.
    async fn connect_one(
        &self,
        settings: &RedisConnectionInfo,
        protocol: Protocol,
    ) -> Result<(Link, Wire, Protocol), StoreError> {
        let (address, begun) = (self.address, self.clock.now());
        let stream: Box<dyn Duplex> = Box::new(Outlived(self.stream().await?));
        let stream: Box<dyn Duplex> = match &address.addr {
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, .. } => {
                let over = address.tls.over(stream, host).await;
                Box::new(over.map_err(|error| refusal(address, &error.into()))?)
            }
            _ => stream,
        };
        // Scripts publish on a channel that the handshake names.
        let flight = Flight::new(self.scripts.clone(), String::new());
        let (mut link, wire) = Link::new(stream, flight, self.listener.clone(), self.clock.clone());
        let (refused, is_closed) = match link.until(log_in(&wire, settings, protocol)).await {
            Ok(Ok(protocol)) => return Ok((link, wire, protocol)),
            // A server that takes no more clients, or none from other hosts, says so first of all, and closes.
            Ok(Err(said)) if !is_about_login(&said) => {
                let left = self.limit.saturating_sub(self.clock.now().since(begun));
                let closes = self.clock.within(CLOSES_WITHIN.min(left / 2), link.run());
                (said, closes.await.is_some())
            }
            Ok(Err(said)) => (said, false),
            Err(error) => (error, false),
        };
        let error = refusal(address, &refused);
        if !is_closed || error.kind == StoreErrorKind::Unreachable {
            return Err(error);
        }
        let detail = format!("it closed the connection, and said: {}", error.detail);
        // Words that are not known may be about an outage that passes.
        let kind = match error.kind {
            StoreErrorKind::Protocol => StoreErrorKind::Unreachable,
            kind => kind,
        };
        Err(StoreError::new(error.store, kind, detail))
    }

    /// The login. Asks the address's source of credentials, if it has one.
    async fn credentials(&self) -> Result<RedisConnectionInfo, StoreError> {
        let Self { address, limit, .. } = *self;
        let settings = address.login().clone();
        let ask = match &address.credentials {
            None => return Ok(settings),
            Some(Source::Urls(read)) => {
                // A panic must not end the dialing task.
                let urls = catch_unwind(AssertUnwindSafe(|| read())).unwrap_or_default();
                let found = urls.iter().find_map(|url| credentials_in(url, address));
                return Ok(found.unwrap_or(settings));
            }
            Some(Source::Credentials(ask)) => ask,
        };
        let (kind, why) = match self.clock.within(limit, ask()).await {
            Some(Ok(Credentials { user, password })) => {
                let settings = settings.set_password(password);
                return Ok(match user {
                    Some(user) => settings.set_username(user),
                    None => settings,
                });
            }
            Some(Err(why)) => (
                StoreErrorKind::Unreachable,
                format!("no credentials: {why}"),
            ),
            None => (
                StoreErrorKind::TimedOut,
                format!("the source of credentials did not answer for {limit:.1?}"),
            ),
        };
        Err(StoreError::new(address.to_string(), kind, why))
    }

    async fn stream(&self) -> Result<Box<dyn Duplex>, StoreError> {
        if let (Some(dialer), Some((host, port))) = (&self.address.dialer, self.address.place()) {
            let made = dialer.dial(&host, port).await;
            return made.map_err(|error| {
                let kind = StoreErrorKind::of_io(&error, StoreErrorKind::Unreachable);
                let why = format!("the dial function failed: {error}");
                StoreError::new(self.address.to_string(), kind, why)
            });
        }
        let connected = self.connected().await;
        connected.map_err(|error| refusal(self.address, &error))
    }

    async fn connected(&self) -> RedisResult<Box<dyn Duplex>> {
        Ok(match &self.address.addr {
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                match self.placement {
                    Some(placement) => Box::new(placement.socket(stream.into_std()?)),
                    None => Box::new(stream),
                }
            }
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let addresses: Vec<_> = lookup_host((host.as_str(), *port)).await?.collect();
                let made = first_of(in_turns(&addresses), TcpStream::connect, self.clock).await;
                let stream = made.map_err(|mut failed| {
                    let none =
                        || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                    failed.pop().unwrap_or_else(none)
                })?;
                Address::tune(&stream)?;
                match self.placement {
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
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Resp2,
    Resp3,
}

/// Logs in, chooses the database, and says which library this is. Returns the protocol, which is RESP2 if the server refuses RESP3.
async fn log_in(
    wire: &Wire,
    settings: &RedisConnectionInfo,
    protocol: Protocol,
) -> RedisResult<Protocol> {
    let (user, password) = (settings.username(), settings.password());
    let ask = async |command: Cmd| {
        let said = command.query_async::<Value>(&mut wire.clone()).await;
        said.map(drop)
    };
    if protocol == Protocol::Resp3 {
        let mut hello = cmd("HELLO");
        hello.arg(3);
        if let Some(password) = password {
            let user = user.unwrap_or("default");
            hello.arg("AUTH").arg(user).arg(password);
        }
        // Some proxies answer in RESP2 and refuse nothing.
        let greeted = async {
            match hello.query_async(&mut wire.clone()).await? {
                Value::Map(_) => Ok(()),
                _ => Err((ErrorKind::RESP3NotSupported, "it answers in RESP2").into()),
            }
        };
        match begin(wire, settings, greeted).await {
            Err(error) if takes_no_resp3(&error) => {}
            begun => return begun.map(|()| Protocol::Resp3),
        }
    }
    let login = async {
        let Some(password) = password else {
            return Ok(());
        };
        let mut auth = cmd("AUTH");
        // Not every server that refuses RESP3 knows users.
        auth.arg(user).arg(password);
        let said = ask(auth).await;
        said.map_err(|error| password_refused(error, password))
    };
    begin(wire, settings, login).await?;
    Ok(Protocol::Resp2)
}

/// Sends a login and all that follows it, in one packet.
async fn begin(
    wire: &Wire,
    settings: &RedisConnectionInfo,
    login: impl Future<Output = RedisResult<()>>,
) -> RedisResult<()> {
    let mut rest = pipe();
    let library = [
        ("LIB-NAME", settings.lib_name()),
        ("LIB-VER", settings.lib_ver()),
    ];
    for (what, value) in library {
        let words = &["SETINFO", what, value.unwrap_or_default()];
        rest.cmd("CLIENT").arg(words);
    }
    if settings.db() != 0 {
        rest.cmd("SELECT").arg(settings.db());
    }
    let mut wire = wire.clone();
    // Some servers don't know CLIENT SETINFO.
    let rest = async { rest.ignore_errors().query_async(&mut wire).await };
    // Started one after the other, so that all leave in one packet.
    let ((), mut answers): ((), Vec<RedisResult<Value>>) = futures_util::try_join!(login, rest)?;
    match answers.split_off(library.len()).pop() {
        Some(Err(error)) if error.code() != Some("NOAUTH") => {
            let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
            let what = "Redis server refused to switch database";
            let detail = error.detail().unwrap_or_default().to_owned();
            Err((kind, what, detail).into())
        }
        Some(answer) => answer.map(drop),
        None => Ok(()),
    }
}

/// True if the server or a proxy does not know HELLO, or not this version of the protocol. Its words may quote the password.
fn takes_no_resp3(refused: &RedisError) -> bool {
    let is_login = matches!(refused.code(), Some("WRONGPASS" | "NOAUTH"));
    let is_refused = refused.kind() == ErrorKind::RESP3NotSupported
        || refused.code() == Some("NOPROTO")
        || takes_no("HELLO", refused)
        || is_unknown_command(refused);
    is_refused && !is_login
}

fn is_unknown_command(refused: &RedisError) -> bool {
    let said = refused.to_string().to_lowercase();
    said.contains("unknown command") || said.contains("unsupported command")
}

/// The refusal of a password, for which servers without users have words of their own.
fn password_refused(refused: RedisError, password: &str) -> RedisError {
    if is_about_login(&refused) || !is_forbidden(&refused) {
        return refused;
    }
    let (kind, what) = (ErrorKind::AuthenticationFailed, "it refused the password");
    let said = refused.to_string();
    if is_unknown_command(&refused) || said.contains(password) {
        return (kind, what).into();
    }
    (kind, what, said).into()
}

/// True if the server refuses this login, and may take another one.
fn is_about_login(refused: &RedisError) -> bool {
    refused.kind() == ErrorKind::AuthenticationFailed
        || matches!(refused.code(), Some("WRONGPASS" | "NOAUTH" | "NOPERM"))
}

/// The credentials that a URL has for this server; `None` if it names other servers only.
fn credentials_in(url: &str, address: &Address) -> Option<RedisConnectionInfo> {
    let scheme = url.split(':').next().unwrap_or_default();
    let named = if QuorumAddress::has_scheme(scheme) {
        QuorumAddress::parse(url).ok()?.nodes
    } else {
        vec![Address::parse(url).ok()?]
    };
    let this = named.into_iter().find(|other| other.is_given_as(address))?;
    Some(match address.watched {
        Some(_) => this.login().clone(),
        None => this.settings.clone(),
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
/// Those of all addresses; the last one failed last.
pub(super) async fn first_of<A, S, E, F>(
    addresses: Vec<A>,
    connect: impl Fn(A) -> F,
    clock: &Clock,
) -> Result<S, Vec<E>>
where
    F: Future<Output = Result<S, E>>,
{
    let mut failed = Vec::new();
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
            Some(Some(Err(error))) => failed.push(error),
            Some(None) => return Err(failed),
            None => {}
        }
    }
}

/// A stream whose other side may close it. To a side that has closed, nothing can be written, and no error says so: reading goes on instead. It
/// first gets what that side said before (an error line, or an alert of TLS), and then the end.
struct Outlived(Box<dyn Duplex>);

impl AsyncRead for Outlived {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Outlived {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};

        let written = ready!(Pin::new(&mut self.0).poll_write(context, bytes));
        Poll::Ready(written.or_else(|error| match error.kind() {
            BrokenPipe | ConnectionReset | ConnectionAborted => Ok(bytes.len()),
            _ => Err(error),
        }))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::store::redis::fault::classify;

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
    async fn race(hosts: &[Host]) -> (Result<u16, Option<io::ErrorKind>>, u128, u32) {
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
        let won = won.map_err(|failed: Vec<io::Error>| failed.last().map(io::Error::kind));
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
        let refused = Err(Some(io::ErrorKind::ConnectionRefused));
        assert_eq!(race(&[Refuses, Refuses]).await, (refused, 0, 2));
        assert_eq!(race(&[]).await.0, Err(None));
    }

    /// The error of a connection whose other side sends these bytes and closes.
    async fn after(said: &[u8]) -> StoreError {
        let (near, far) = UnixStream::pair().unwrap();
        let answering = async move {
            far.readable().await.unwrap();
            // Reads the whole request, or closing would reset the connection.
            let mut asked = [0; 1024];
            assert!(far.try_read(&mut asked).unwrap() < asked.len());
            if !said.is_empty() {
                assert_eq!(far.try_write(said).unwrap(), said.len());
            }
            drop(far);
        };
        let flight = Flight::new(Arc::default(), String::new());
        let (mut link, wire) = Link::new(Box::new(near), flight, Arc::new(drop), Clock::system());
        let address = Address::parse("redis://there/").unwrap();
        let connecting = link.until(log_in(&wire, &address.settings, Protocol::Resp3));
        let (answer, ()) = tokio::join!(connecting, answering);
        let error = answer.map_or_else(|lost| lost, Result::unwrap_err);
        classify("store", &error).0
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_anywhere_is_a_lost_connection() {
        let hello = b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:8\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
        for bytes in 0..=hello.len() {
            let error = after(&hello[..bytes]).await;
            assert_eq!(error.kind, StoreErrorKind::Unreachable, "{bytes}: {error}");
        }
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            b"\x15\x03\x01\x00\x02\x02\x0a",
        ] {
            let error = after(other).await;
            assert_eq!(error.kind, StoreErrorKind::Protocol, "{error}");
        }
    }

    /// Else it would get messages among the replies, which it could not tell from each other.
    #[tokio::test]
    async fn a_hello_that_is_answered_in_resp2_leads_to_resp2() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let (near, mut far) = UnixStream::pair().unwrap();
        let hello = "*2\r\n$5\r\nproto\r\n:2\r\n";
        let answering = async {
            // The second time, to AUTH. CLIENT SETINFO follows each of them twice.
            for said in [hello, "+OK\r\n"] {
                assert!(far.read(&mut [0; 1024]).await.unwrap() > 0);
                let said = said.to_owned() + "+OK\r\n+OK\r\n";
                far.write_all(said.as_bytes()).await.unwrap();
            }
        };
        let flight = Flight::new(Arc::default(), String::new());
        let (mut link, wire) = Link::new(Box::new(near), flight, Arc::new(drop), Clock::system());
        let address = Address::parse("redis://:S3CR3T@there/").unwrap();
        let login = link.until(log_in(&wire, &address.settings, Protocol::Resp3));
        let (protocol, ()) = tokio::join!(login, answering);
        assert_eq!(protocol.unwrap().unwrap(), Protocol::Resp2);
    }

    #[tokio::test]
    async fn no_error_of_an_unknown_hello_shows_its_arguments() {
        for quote in ["'", "`"] {
            let said = format!(
                "-ERR unknown command {quote}HELLO{quote}, with args beginning with: '3' 'AUTH' 'user' 'S3CR3T'\r\n"
            );
            // It closes before it is asked in RESP2.
            let error = after(said.as_bytes()).await;
            assert_eq!(error.kind, StoreErrorKind::Unreachable);
            assert!(!error.detail.contains("S3CR3T"), "{error}");
        }
    }

    fn said(line: &str) -> RedisError {
        let line = format!("-{line}\r\n");
        let value = redis::parse_redis_value(line.as_bytes());
        value.and_then(Value::extract_error).unwrap_err()
    }

    #[test]
    fn resp2_follows_a_refusal_of_the_protocol_and_no_other() {
        for (line, refuses) in [
            ("NOPROTO unsupported protocol version", true),
            (
                "ERR unknown command 'HELLO', with args beginning with: '3' ",
                true,
            ),
            (
                "ERR unknown command `hello`, with args beginning with: `3`, ",
                true,
            ),
            ("ERR handle request, command 'HELLO' is not allowed", true),
            ("ERR unsupported command", true),
            (
                "NOPERM this user has no permissions to run the 'hello' command",
                true,
            ),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                false,
            ),
            (
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used",
                false,
            ),
            ("ERR max number of clients reached", false),
            ("ERR upstream of HELLO is temporarily unavailable", false),
            ("LOADING Redis is loading the dataset in memory", false),
        ] {
            assert_eq!(takes_no_resp3(&said(line)), refuses, "{line}");
        }
    }

    #[test]
    fn a_password_is_refused_in_whatever_words() {
        for (line, shown) in [
            (
                "WRONGPASS invalid username-password pair",
                "invalid username",
            ),
            ("ERR invalid password", "invalid password"),
            (
                "ERR Client sent AUTH, but no password is set",
                "no password is set",
            ),
            (
                "ERR unknown command 'AUTH', with args beginning with: 'S3C",
                "refused the password",
            ),
            ("ERR not S3CR3T", "refused the password"),
        ] {
            let error = classify("store", &password_refused(said(line), "S3CR3T")).0;
            assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
            assert!(
                error.detail.contains(shown) && !error.detail.contains("S3C"),
                "{error}"
            );
        }
        let error = classify(
            "store",
            &password_refused(said("LOADING it loads"), "S3CR3T"),
        )
        .0;
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    }
}

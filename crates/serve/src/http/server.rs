//! The server: an address, connections with limits, and routes behind a guard.

use std::fmt;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::answer::{nothing, other_method};
use super::guard::Guard;

/// Routes behind a guard.
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use leasehold_serve::{Guard, Server, Token};
///
/// # fn main() -> Result<(), String> {
/// let guard = Guard::new(Some(Token::fresh()?));
/// let page = Router::new().route("/", get(|| async { "the page asks for the token" }));
/// let api = Router::new().route("/api/v1/now", get(|| async { "behind the token" }));
/// let service: Router = Server::new(guard).mount(api).mount_open(page).router();
/// # drop(service); Ok(()) }
/// ```
#[derive(Debug)]
pub struct Server {
    guard: Arc<Guard>,
    closed: Router,
    open: Router,
    base: String,
}

impl Server {
    /// A server with the route `/healthz` only, which any client may ask.
    pub fn new(guard: Guard) -> Self {
        Self {
            guard: Arc::new(guard),
            closed: Router::new(),
            open: Router::new(),
            base: String::new(),
        }
    }

    /// These routes too, behind all rules of the guard.
    #[must_use]
    pub fn mount(mut self, routes: Router) -> Self {
        self.closed = self.closed.merge(routes);
        self
    }

    /// These routes too, for clients without the token: a page must be loaded before it can send a header. The other rules of the guard
    /// count.
    #[must_use]
    pub fn mount_open(mut self, routes: Router) -> Self {
        self.open = self.open.merge(routes);
        self
    }

    /// The path before all routes, for a proxy that passes it on: `/leasehold`.
    ///
    /// # Errors
    /// A path that does not begin with `/`, ends with one, or has other characters than letters, digits, `/`, `-`, `_` and `.`.
    pub fn base(mut self, base: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
        let is_path = base.starts_with('/') && !base.ends_with('/') && !base.contains("//");
        let is_base = base.is_empty() || is_path && base.bytes().all(is_plain);
        if !is_base {
            return Err(format!(
                "{base:?} is no base path: write one like /leasehold, with letters, digits and - _ . only"
            ));
        }
        base.clone_into(&mut self.base);
        Ok(self)
    }

    /// All routes, for [`Listener::serve`] or another service.
    pub fn router(self) -> Router {
        let closed = self
            .closed
            .fallback(nothing)
            .method_not_allowed_fallback(other_method);
        let open = self.open.method_not_allowed_fallback(other_method);
        // A probe of the host's service manager knows neither token nor name.
        let health = Router::new().route("/healthz", get(healthz));
        let routes = self.guard.closed(closed);
        let routes = routes.merge(self.guard.open(open)).merge(health);
        match self.base.as_str() {
            "" => routes,
            base => Router::new().nest(base, routes),
        }
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; with port 0 the system chooses one.
    Tcp(SocketAddr),
    /// The path of a socket that only this user can connect to.
    Unix(PathBuf),
}

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// The most connections. A further one waits until another one ends.
    pub connections: usize,
    /// How long a connection may take for the head of a request, and be idle between two.
    pub head: Duration,
    /// How long the end waits for open connections.
    pub end: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            head: Duration::from_secs(30),
            end: Duration::from_secs(2),
        }
    }
}

/// How long a host may leave what is sent to it without an acknowledgement: it is off, or cut off.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How many bytes the system keeps for a client that does not read. It would keep megabytes, of each of thousands.
const UNREAD: usize = 64 * 1024;

/// How often a host is asked for a sign of life while nothing is sent: a request waits.
const ALIVE: Duration = Duration::from_secs(10);

/// An address that is bound.
#[derive(Debug)]
pub struct Listener(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a socket, which is removed at the end.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Its device and its number there.
    identity: Option<(u64, u64)>,
    /// The lock on the file beside it. Of two servers that begin at once, one replaces the socket.
    _lock: File,
}

impl SocketFile {
    fn identity(path: &Path) -> Option<(u64, u64)> {
        let found = fs::symlink_metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have removed it, and put its own there.
        if self.identity.is_some() && Self::identity(&self.path) == self.identity {
            let _removed: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Binds the address. The socket of a server that has ended is replaced.
    ///
    /// # Errors
    /// Those of the system, and [`io::ErrorKind::AddrInUse`] if another program listens there.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        Ok(Self(match address {
            Address::Tcp(address) => Bound::Tcp(TcpListener::bind(address).await?),
            Address::Unix(path) => {
                let (listener, file) = bind_socket(path)?;
                Bound::Unix(listener, file)
            }
        }))
    }

    /// The address with the port that it has, as `http://127.0.0.1:7787` or `unix:/path`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<String> {
        Ok(match &self.0 {
            Bound::Tcp(listener) => format!("http://{}", listener.local_addr()?),
            Bound::Unix(_, file) => format!("unix:{}", file.path.display()),
        })
    }

    /// Serves until `stop` ends. Then it takes no more connections, and ends those that are open after their answers.
    pub async fn serve(self, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(limits.connections));
        let (ending, ends) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let accepted = async {
                // It is never closed.
                let permit = permits.clone().acquire_owned().await.ok();
                (self.0.accept().await, permit)
            };
            let (stream, permit) = tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
                (stream, permit) = accepted => (stream, permit),
            };
            let Ok(stream) = stream else {
                // The process or its host has no file descriptor to spare, or the client has gone.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (router, ends) = (router.clone(), ends.clone());
            connections.spawn(async move {
                stream.serve(router, limits, ends).await;
                drop(permit);
            });
        }
        ending.send_replace(true);
        // A client that connects from now on is refused at once. The file is removed at last.
        let Self(bound) = self;
        let _file = match bound {
            Bound::Tcp(listener) => {
                drop(listener);
                None
            }
            Bound::Unix(listener, file) => {
                drop(listener);
                Some(file)
            }
        };
        let all = async { while connections.join_next().await.is_some() {} };
        // Those that are left are cut off.
        let _ended = tokio::time::timeout(limits.end, all).await;
    }
}

impl Bound {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A failure is that of this connection: its client has gone.
                let _set = set_options(&stream);
                Ok(Accepted::Tcp(stream))
            }
            Self::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

/// Sends at once, keeps little for a client that does not read, and ends with a client whose host is off or cut off.
fn set_options(stream: &tokio::net::TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(UNREAD)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

enum Accepted {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Accepted {
    async fn serve(self, router: Router, limits: Limits, ends: watch::Receiver<bool>) {
        match self {
            Self::Tcp(stream) => connection(stream, router, limits, ends).await,
            Self::Unix(stream) => connection(stream, router, limits, ends).await,
        }
    }
}

/// Serves one connection to its end.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: Limits,
    mut ends: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(64 * 1024);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // An error is the client's: it has gone, or speaks no HTTP.
        ended = connection.as_mut() => return drop(ended),
        _ = ends.wait_for(|ends| *ends) => {}
    }
    connection.as_mut().graceful_shutdown();
    drop(connection.await);
}

/// A socket that only this user can connect to.
fn bind_socket(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let lock = lock_beside(path)?;
    remove_dead(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: SocketFile::identity(path),
        _lock: lock,
    };
    // Before it listens, so that no other user can connect first.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(1_024)?;
    socket.set_nonblocking(true)?;
    Ok((UnixListener::from_std(socket.into())?, file))
}

/// Locks `PATH.lock` until the file is closed. It is never removed: another server could lock a file that has no name any more.
fn lock_beside(path: &Path) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let mut options = File::options();
    let lock = options.create(true).truncate(false).write(true).mode(0o600);
    let lock = lock.open(&beside)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(in_use(path)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the socket of a server that has ended. Only a connection that is refused says so.
fn remove_dead(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let why = format!("{} exists, and is no socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A program with a full queue would block the connection.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // That of another user, whose server may live.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Err(in_use(path)),
    }
}

fn in_use(path: &Path) -> io::Error {
    let why = format!("another program listens on {}", path.display());
    io::Error::new(io::ErrorKind::AddrInUse, why)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_to_a_host_that_is_cut_off_ends() {
        let address = Address::Tcp(([127, 0, 0, 1], 0).into());
        let listener = Listener::bind(&address).await.unwrap();
        let at = listener.address().unwrap().replace("http://", "");
        let _client = tokio::net::TcpStream::connect(at).await.unwrap();
        let Ok(Accepted::Tcp(stream)) = listener.0.accept().await else {
            panic!("no connection");
        };
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
        assert!(socket.keepalive().unwrap());
        let asks = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        assert_eq!((asks.0.unwrap(), asks.1.unwrap()), (ALIVE, ALIVE));
    }
}

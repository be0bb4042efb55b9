//! Settings of a client.

use std::time::Duration;

use super::handle::Client;
#[cfg(feature = "redis")]
use crate::access::{Access, Credentials, Source};
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "cache")]
use crate::guard::LocalCacheSettings;
use crate::store::memory::Memory;

impl Client {
    /// Connects to the store at `url`, with the defaults of [`ClientBuilder`].
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | Redis or Valkey |
    /// | `rediss://...` | the same over TLS |
    /// | `valkey://...`, `valkeys://...` | the same as the two above |
    /// | `unix:/path/to/socket[?db=1&user=..&pass=..]` | the same over a Unix socket; also `redis+unix://...` |
    /// | `local:`, `local:/path/to/file[?mode=0660]` | the processes of this user, or of all who may write the file, on one host |
    /// | `memory:` | this client only |
    ///
    /// `?db=1` means the same as `/1`. Whatever else stands in a URL is refused. The path of a `local:` file must be absolute, since a
    /// relative one would mean another file in each directory; `mode` is that of the file if it has to be made: `0600` (the
    /// default), `0660` or `0666`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let client = Client::connect("memory:").await?;      // or "redis://127.0.0.1/"
    /// println!("locks are in {}", client.store());
    /// client.close().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL of another form, [`Error::Store`] when the store does not answer as it should.
    ///
    /// # Cancel safety
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A client with a new store in memory, which no other client shares.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let client = Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the system refuses a thread.
    pub fn embedded() -> Result<Self, Error> {
        Self::builder().embedded(&Memory::new(Clock::system()))
    }

    /// A builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

/// Settings of a client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
/// use leasehold::Client;
///
/// let client = Client::builder()
///     .namespace("shop")                               // the lock "orders" has the key "shop:orders"
///     .request_timeout(Duration::from_secs(1))
///     .outage_timeout(Duration::from_secs(10))
///     .connect("memory:")                              // or "redis://127.0.0.1/"
///     .await?;
/// let lease = client.mutex("orders").acquire().await?;
/// # drop(lease); client.close().await; Ok(()) }
/// ```
///
/// # Time limits
///
/// | limit | what it ends |
/// |---|---|
/// | [`ClientBuilder::request_timeout`] | one request to the store |
/// | [`ClientBuilder::outage_timeout`] | the wait in the queue, while the store does not answer |
/// | [`Mutex::acquire_within`](crate::Mutex::acquire_within) | the wait for a busy lock |
/// | [`Mutex::ttl`](crate::Mutex::ttl) | a lease that is not renewed |
/// | [`Mutex::max_hold`](crate::Mutex::max_hold) | a lease, although it is renewed |
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    pub(super) namespace: Option<String>,
    pub(super) key_template: Option<String>,
    pub(super) host: Option<String>,
    pub(super) request_timeout: Duration,
    pub(super) outage_timeout: Duration,
    pub(super) clock: Clock,
    pub(super) metric_names: Vec<String>,
    #[cfg(feature = "redis")]
    pub(super) access: Access,
    #[cfg(feature = "cache")]
    pub(super) cache_layer: Option<LocalCacheSettings>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            namespace: None,
            key_template: None,
            host: None,
            request_timeout: Duration::from_secs(2),
            outage_timeout: Duration::from_secs(30),
            clock: Clock::system(),
            metric_names: Vec::new(),
            #[cfg(feature = "redis")]
            access: Access::default(),
            #[cfg(feature = "cache")]
            cache_layer: None,
        }
    }
}

impl ClientBuilder {
    /// A prefix for all lock names of this client, followed by a colon. Default: none, so that the key is the name.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// How the key of a lock is made from its name, to share it with programs that put something around theirs: `lock:{}` for
    /// python-redis-lock, `redlock:{}` for pottery, `mutex:{}` for redis-semaphore. `{}` stands for the name, with the
    /// namespace before it. Default: `{}`, the name itself. Programs that exclude each other must have the same.
    pub fn key_template(mut self, template: impl Into<String>) -> Self {
        self.key_template = Some(template.into());
        self
    }

    /// What others see as the holder's host. Default: `user@hostname`, or just the host where no user is known.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// The time limit of one request to the store. A third of the TTL counts instead if that is shorter. 10 ms to 60 s; default 2 s.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// How long a queued acquisition keeps retrying while the store does not answer. Then it fails with [`Error::Store`]. At most 24 h;
    /// default 30 s. An acquisition that is not queued yet fails after two seconds.
    pub fn outage_timeout(mut self, outage_timeout: Duration) -> Self {
        self.outage_timeout = outage_timeout;
        self
    }

    /// The clock of the client and of an embedded store. Default: the system's. [`Clock::virtual_time`] needs a tokio runtime: without
    /// one, building the client fails with [`Error::Invalid`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps up to `max_bytes` of fresh cache values in this process, so that reading one that is asked for often costs no request.
    /// Default: none.
    ///
    /// On Redis, whatever changes an entry (an invalidation or a newer value of another process, `DEL`, `FLUSHALL`, eviction) is pushed to
    /// this client, by the server's `CLIENT TRACKING`; until that arrives, the value it has may still be given out as fresh here. A value is
    /// given out for `max_age` at most after it was read, also where nothing is pushed: from `local:`, for a user who may not `CLIENT TRACKING`, and over a connection that broke
    /// and nobody noticed yet. With this, an invalidation by another process is therefore seen a moment later, and `max_age` later at worst.
    #[cfg(feature = "cache")]
    pub fn cache_in_process(mut self, max_bytes: u64, max_age: Duration) -> Self {
        self.cache_layer = Some(LocalCacheSettings { max_bytes, max_age });
        self
    }

    /// Which locks have a time series of their own in `metrics`, by the label `lock`: names, or prefixes that end in `*`. All
    /// others are `other`; if none are declared, there is no such label. Each name that is declared costs memory for as long
    /// as the program runs, so declare kinds of work, not customers. Default: none.
    #[cfg(feature = "metrics")]
    pub fn metric_names(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.metric_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Asks for user and password at each dial, so that they can change while the client lives: a token that expires, a secret that is
    /// rotated. The URL must have none. The source may take as long as a request; one that takes longer, fails or panics is asked again, and
    /// its error is told to people. It may run on the runtime that the client was made on: let it wait, but not block for long. Of use
    /// to a server only. Default: the credentials of the URL, if any.
    ///
    /// ```no_run
    /// use std::io;
    /// use leasehold::{Client, Credentials};
    ///
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let source = async || {
    ///     let secret = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, io::Error>(Credentials::password(secret.trim_end()))
    /// };
    /// let client = Client::builder().credentials(source).connect("redis://db.internal/").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn credentials<F, E>(mut self, source: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.access.credentials = Some(Source::new(source));
        self
    }

    /// How `rediss://` connections are encrypted: authorities, a certificate of the client's own, a provider of cryptography. Takes a
    /// [`ClientConfig`](rustls::ClientConfig) of [`leasehold::rustls`](crate::rustls). With it, a URL that would send in clear is refused.
    /// Default: the authorities that this system trusts, with the provider that the program has installed, or ring.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use leasehold::Client;
    /// use leasehold::rustls::{ClientConfig, RootCertStore, crypto::ring};
    ///
    /// # async fn example(authorities: RootCertStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
    ///     .with_safe_default_protocol_versions()?
    ///     .with_root_certificates(authorities)
    ///     .with_no_client_auth();
    /// let client = Client::builder().tls(config).connect("rediss://db.internal/").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<std::sync::Arc<rustls::ClientConfig>>) -> Self {
        self.access.tls = Some(config.into());
        self
    }
}

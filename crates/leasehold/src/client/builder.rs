//! Settings of a client.

#[cfg(feature = "redis")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
use crate::access::{Access, Credentials, Source};
use crate::clock::Clock;

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
/// | [`ClientBuilder::drop_timeout`] | the drop of the client's last object, while releases are under way |
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
    pub(super) drop_timeout: Duration,
    pub(super) clock: Clock,
    pub(super) metric_names: Vec<String>,
    #[cfg(feature = "redis")]
    pub(super) access: Access,
    /// Replaces the one of the URL, if given.
    #[cfg(feature = "redis")]
    pub(super) quorum_longest_ttl: Option<Duration>,
    /// Replaces the one of the URL, if given.
    #[cfg(feature = "redis")]
    pub(super) quorum_durable: Option<bool>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            namespace: None,
            key_template: None,
            host: None,
            request_timeout: Duration::from_secs(2),
            outage_timeout: Duration::from_secs(30),
            drop_timeout: Duration::from_millis(250),
            clock: Clock::system(),
            metric_names: Vec::new(),
            #[cfg(feature = "redis")]
            access: Access::default(),
            #[cfg(feature = "redis")]
            quorum_longest_ttl: None,
            #[cfg(feature = "redis")]
            quorum_durable: None,
        }
    }
}

impl ClientBuilder {
    /// A prefix for all lock names of this client, followed by a colon. Default: none, so the key is the name.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// How the key of a lock is made from its name, to share it with programs that put something around theirs: `lock:{}` for
    /// python-redis-lock, `redlock:{}` for pottery, `mutex:{}` for redis-semaphore. `{}` stands for the name, with the
    /// namespace before it. Default: `{}`, the name itself. Programs that exclude each other must have equal templates.
    pub fn key_template(mut self, template: impl Into<String>) -> Self {
        self.key_template = Some(template.into());
        self
    }

    /// The host that other clients see in the holder. Default: `user@hostname`, or just the host where no user is known.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// The time limit of one request to the store. A third of the TTL counts instead if that is shorter. 10 ms to 60 s; default 2 s.
    ///
    /// When the limit of an acquisition has passed, an answer under way gets an eighth of this more, and at least 250 ms.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// How long a queued acquisition keeps retrying while the store does not answer. Then it fails with
    /// [`Error::Store`](crate::Error::Store). At most 24 h; default 30 s. An acquisition that is not queued yet fails after two seconds.
    pub fn outage_timeout(mut self, outage_timeout: Duration) -> Self {
        self.outage_timeout = outage_timeout;
        self
    }

    /// How long the drop of the last object of this client may block its thread, so that dropped leases are released although the program ends
    /// right after. It waits only while a request is under way, so not at all after a
    /// [`Client::close_within`](crate::Client::close_within) that returned true. Usually it waits for one round trip, and up to 60 ms more
    /// on the thread of a runtime that has no other. At most 60 s; default 250 ms; zero means that it never waits. A client with a [virtual clock](Clock::virtual_time) never waits.
    pub fn drop_timeout(mut self, limit: Duration) -> Self {
        self.drop_timeout = limit;
        self
    }

    /// The clock of the client and of an embedded store. Default: the system's. [`Clock::virtual_time`] needs a tokio runtime: without
    /// one, building the client fails with [`Error::Invalid`](crate::Error::Invalid).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The locks that have their own time series in `metrics`, by the label `lock`: names, or prefixes that end in `*`. All other locks
    /// have the label `other`. Without declared names, there is no such label. Each declared name costs memory for as long as the program
    /// runs, so declare kinds of work, not customers. Default: none.
    #[cfg(feature = "metrics")]
    pub fn metric_names(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.metric_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// A source of user and password. The client asks it at each dial, so the credentials can change while the client lives: a token that
    /// expires, a secret that is rotated. The URL must have no credentials then.
    ///
    /// The source has the time limit of a request. If it takes longer, fails or panics, the client asks it again and reports its error. It
    /// may run on the runtime on which the client was made, so it must not block for long. For servers only. Default: the credentials of the
    /// URL, if any.
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

    /// The URLs, read again at each dial. User and password are those of the URL that names the server, so a program that keeps its URL in
    /// a file needs no restart when the file has another password. All else in the URLs has no effect after the start. If none of them
    /// names the server, those of the start count. For servers only.
    ///
    /// `read` may run on the runtime on which the client was made, so it must not block for long.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::Client;
    ///
    /// let read = || std::fs::read_to_string("/run/secrets/redis-url");
    /// let again = move || read().into_iter().collect();
    /// let client = Client::builder().credentials_of_urls(again).connect(&read()?).await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn credentials_of_urls(
        mut self,
        read: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.access.credentials = Some(Source::Urls(Arc::new(read)));
        self
    }

    /// The longest TTL of a lease in a quorum. A longer TTL is refused. A server that lost its memory gives no vote for a little longer than
    /// this. All clients of the quorum must have the same value. 10 ms to 24 h; default 60 s.
    ///
    /// It replaces the option `max_ttl` of a URL. It has no effect on a store that is not a quorum.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Client;
    ///
    /// let builder = Client::builder().quorum_longest_ttl(Duration::from_secs(30));
    /// let client = builder.connect("redis+quorum://a.internal,b.internal,c.internal/").await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn quorum_longest_ttl(mut self, longest: Duration) -> Self {
        self.quorum_longest_ttl = Some(longest);
        self
    }

    /// Whether each server of a quorum writes a change to its disk before it answers, as with `appendfsync always`. The client then trusts a
    /// server that has restarted. Only set it if that is so for all servers: otherwise two clients may hold one lock. Default: false.
    ///
    /// It replaces the option `durable` of a URL. It has no effect on a store that is not a quorum.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    ///
    /// let servers = ["redis://a.internal/", "redis://b.internal/", "redis://c.internal/"];
    /// let client = Client::builder().quorum_durable(true).connect_quorum(servers).await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn quorum_durable(mut self, durable: bool) -> Self {
        self.quorum_durable = Some(durable);
        self
    }

    /// The settings of encrypted connections ([`Tls`](crate::Tls)), or a whole [`ClientConfig`](rustls::ClientConfig) of
    /// [`leasehold::rustls`](crate::rustls). They count for each `rediss://` server. A URL without TLS is refused then, and so is one with
    /// TLS options of its own. Default: the options of the URL.
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
    pub fn tls(mut self, tls: impl Into<crate::tls::Tls>) -> Self {
        self.access.tls = Some(tls.into());
        self
    }
}

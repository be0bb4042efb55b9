//! Settings of a client, and how a client is built from them.

#[cfg(feature = "cache")]
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{Invalid, KeyTemplate, Namespace, Naming};
use tokio::sync::oneshot;

use super::handle::Client;
#[cfg(feature = "redis")]
use crate::access::{Access, Credentials, Source};
use crate::clock::Clock;
#[cfg(feature = "doctor")]
use crate::doctor::{Examination, Examined};
use crate::error::{Error, StoreError, StoreErrorKind, within};
#[cfg(feature = "cache")]
use crate::guard::{Ears, Guard, LayerSettings};
use crate::lease::{Engine, Identity, Plan, Wire};
use crate::runtime::Tasks;
use crate::store::memory::Memory;
use crate::store::{self, Attach, Opened};
use crate::telemetry::Telemetry;

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
    namespace: Option<String>,
    key_template: Option<String>,
    host: Option<String>,
    request_timeout: Duration,
    outage_timeout: Duration,
    clock: Clock,
    metric_names: Vec<String>,
    #[cfg(feature = "redis")]
    access: Access,
    #[cfg(feature = "cache")]
    cache_layer: Option<LayerSettings>,
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
        self.cache_layer = Some(LayerSettings { max_bytes, max_age });
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

    /// Connects to the store at `url`; see [`Client::connect`] for the forms of a URL.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL, [`Error::Store`] when the store does not answer as it should.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. No lock has been taken by then.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let target = self.target(url)?;
        let limit = self.request_timeout;
        let clock = self.clock.clone();
        let client =
            self.build(|attach, tasks| store::open(target, attach, clock, tasks, limit))?;
        let Engine {
            telemetry, store, ..
        } = &*client.engine;
        telemetry.connecting(store.label());
        if let Err(error) = client
            .run(|engine| async move { engine.store.ready().await })
            .await
        {
            client.engine.close().await;
            return Err(error);
        }
        telemetry.connected(store.label());
        Ok(client)
    }

    /// Gathers the facts that decide whether the store at `url` is fit for locks. On Redis it uses a scratch lock
    /// `leasehold:doctor:*`, removes it, and changes nothing else. It takes about five seconds, or well under one second if
    /// `how` is quick, always in real time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, doctor::Examination};
    ///
    /// let how = Examination::new(Duration::from_secs(30)).quick(true);
    /// let examined = Client::builder().examine("memory:", &how).await?;
    /// println!("{:?}", examined.facts);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL. [`Error::Store`] if no store answers. A refusal by the store is a fact, not an error.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the examination ends by itself on its own thread, and removes its scratch lock.
    #[cfg(feature = "doctor")]
    pub async fn examine(self, url: &str, how: &Examination) -> Result<Examined, Error> {
        self.check_request_timeout()?;
        let target = self.target(url)?;
        let how = how.clone().keys(self.naming()?.pattern(&how.keys));
        let limit = self.request_timeout;
        let (reply, answer) = oneshot::channel();
        // On a new thread, since the caller may be on any executor.
        let work = move || async move {
            let report = store::examine(&target, &how, &Clock::system(), limit).await;
            // Fails if the caller has gone.
            drop(reply.send(report));
        };
        let _started: Tasks = Tasks::on_thread("leasehold-doctor".into(), work)
            .map_err(|error| StoreError::new("client", StoreErrorKind::Exhausted, error))?;
        answer.await.map_err(|_| StoreError::closed())?
    }

    /// A client of `memory`. Other clients of this process may use the same [`Memory`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, Clock, Memory};
    ///
    /// let memory = Memory::new(Clock::system());
    /// let here = Client::builder().embedded(&memory)?;
    /// let there = Client::builder().embedded(&memory)?;
    /// let lease = here.mutex("orders").acquire().await?;
    /// assert!(there.mutex("orders").try_acquire().await?.is_none());
    /// # drop(lease); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting, [`Error::Store`] when the system refuses a thread.
    pub fn embedded(self, memory: &Memory) -> Result<Client, Error> {
        let (clock, limit) = (self.clock.clone(), self.request_timeout);
        self.build(|attach, tasks| Ok(Opened::whole(memory.open(attach, tasks, clock, limit))))
    }

    fn target(&self, url: &str) -> Result<store::Target, Invalid> {
        let target = store::Target::parse(url)?;
        #[cfg(feature = "redis")]
        let target = target.with(&self.access)?;
        Ok(target)
    }

    fn check_request_timeout(&self) -> Result<(), Invalid> {
        within(
            "request timeout",
            self.request_timeout,
            Duration::from_millis(10),
            Duration::from_secs(60),
        )
    }

    /// The key template around the namespace.
    fn naming(&self) -> Result<Naming, Invalid> {
        self.naming_by(self.key_template.as_deref())
    }

    fn naming_by(&self, template: Option<&str>) -> Result<Naming, Invalid> {
        let namespace = self.namespace.as_deref().map(Namespace::new).transpose()?;
        let template = template.map(KeyTemplate::new);
        Ok(Naming::new(
            template.transpose()?.as_ref(),
            namespace.as_ref(),
        ))
    }

    pub(crate) fn build(
        self,
        open: impl FnOnce(Attach, &Tasks) -> Result<Opened, Error>,
    ) -> Result<Client, Error> {
        self.check_request_timeout()?;
        within(
            "outage timeout",
            self.outage_timeout,
            Duration::ZERO,
            Duration::from_secs(24 * 60 * 60),
        )?;
        let limit = self.request_timeout;
        let naming = self.naming()?;
        #[cfg(feature = "cache")]
        let entries = self.naming_by(None)?;
        let identity = Identity::new(self.host)?;

        let wire = Wire::default();
        let (start, started) = oneshot::channel::<BoxFuture<'static, ()>>();
        let main = move || async move {
            // An error: there is no store, so there is nothing to keep.
            if let Ok(run) = started.await {
                run.await;
            }
        };
        let tasks = if self.clock.is_virtual() {
            let tasks = Tasks::here().ok_or_else(no_runtime)?;
            drop(tasks.handle().spawn(main()));
            tasks
        } else {
            Tasks::on_thread(format!("lh-{}", identity.client), main)
                .map_err(|error| StoreError::new("client", StoreErrorKind::Exhausted, error))?
        };
        let listener = wire.listener();
        #[cfg(feature = "cache")]
        let layer = self.cache_layer;
        #[cfg(feature = "cache")]
        let ears = Ears::default();
        #[cfg(feature = "cache")]
        let listener = ears.before(listener);
        let attach = Attach {
            client: identity.client,
            listener,
            #[cfg(feature = "cache")]
            keeps_values: layer.is_some(),
            #[cfg(not(feature = "cache"))]
            keeps_values: false,
        };
        let telemetry = Telemetry::here(&self.metric_names);
        let opened = open(attach, &tasks)?;
        #[cfg(feature = "metrics")]
        let opened = store::counted::counted(&opened, &telemetry);
        let plan = Plan {
            clock: self.clock,
            tasks,
            identity,
            outage_timeout: self.outage_timeout,
            telemetry,
        };
        let (engine, run) = Engine::new(opened.store, plan, &wire);
        // Fails only if the thread has ended, which every later request will say.
        drop(start.send(run.boxed()));
        Ok(Client {
            #[cfg(feature = "cache")]
            guard: Arc::new(Guard::new(engine.clone(), opened.entries, &ears, layer)),
            #[cfg(feature = "cache")]
            entries,
            #[cfg(feature = "timestamp")]
            timestamps: opened.timestamps,
            engine,
            naming,
            close_limit: (limit * 2).max(Duration::from_secs(1)),
        })
    }
}

fn no_runtime() -> Invalid {
    let why = "virtual time follows a tokio runtime, and there is none here: connect inside of one, as in a \
               #[tokio::test(start_paused = true)], or use Clock::system()";
    Invalid::new("clock", "virtual time", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request would time out, or none ever.
    #[cfg(feature = "doctor")]
    #[tokio::test]
    async fn examine_refuses_the_timeouts_that_connect_refuses() {
        for timeout in [Duration::ZERO, Duration::from_secs(61)] {
            let builder = || Client::builder().request_timeout(timeout);
            let how = Examination::new(Duration::from_secs(30));
            let refused = builder().examine("memory:", &how).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            let refused = builder().connect("memory:").await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
}

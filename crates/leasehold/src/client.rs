//! One client of one store. Must never take a lock by itself, and never leave one behind when it is closed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{
    ClientId, Fence, Invalid, KeyTemplate, LockName, Namespace, Naming, Reply, Snapshot, Step,
};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::doctor::{Examination, Report};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::lease::{Detached, Engine, Identity, Plan, Wire};
use crate::mutex::Mutex;
use crate::runtime::Tasks;
use crate::store::memory::Memory;
use crate::store::{self, Attach, Store};
use crate::telemetry::Telemetry;

/// A connection to a store, shared by all the locks made from it. Cheap to clone.
///
/// Its own thread renews leases and cleans up. It ends after the last clone, lease and pending request are gone; to wait
/// for that at the end of a program, call [`Client::close`].
#[derive(Clone)]
pub struct Client {
    pub(crate) engine: Arc<Engine>,
    naming: Naming,
}

impl Client {
    /// Connects to the store at `url`, with the defaults of [`ClientBuilder`].
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | Redis or Valkey |
    /// | `rediss://...` | the same over TLS |
    /// | `unix:/path/to/socket[?db=1&user=..&pass=..]` | the same over a Unix socket |
    /// | `local:`, `local:/path/to/file` | the processes of this user, or of all who may write the file, on one host |
    /// | `memory:` | this client only |
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL of another form, [`Error::Store`] when the store does not answer as it should.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A client with a store of its own in memory.
    ///
    /// # Errors
    /// [`Error::Store`] when the system refuses a thread.
    pub fn embedded() -> Result<Self, Error> {
        Self::builder().embedded(&Memory::new(Clock::system()))
    }

    /// Settings before connecting.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The mutex of this name. Does no I/O; a name that cannot be used is reported when it is acquired.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.engine.clone(), self.name(name.as_ref()))
    }

    /// Who holds the lock and who waits for it.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        let name = self.name(name.as_ref())?;
        match self.ask(name, Step::Inspect).await? {
            Reply::Seen(snapshot) => Ok(snapshot),
            other => {
                let store = self.engine.store.label();
                Err(StoreError::new(store, StoreErrorKind::Protocol, format!("{other:?}")).into())
            }
        }
    }

    /// Frees the lock of a holder that cannot do it, if `fence` is its own, and says whether it did: the one that
    /// [`Client::inspect`] shows, or that of any lease since then while the lock went from task to task there. The holder is told
    /// *lost* at its next renewal. A foreign lock is never broken.
    pub async fn break_lock(&self, name: impl AsRef<str>, fence: Fence) -> Result<bool, Error> {
        let name = self.name(name.as_ref())?;
        Ok(matches!(
            self.ask(name, Step::Break { fence }).await?,
            Reply::Released
        ))
    }

    /// Takes up a lease that was [detached](crate::Lease::detach), here or in another process. Does no I/O: whether it is still
    /// held is for [`Detached::check`] to say.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that cannot be used, and for a token that is not one of this library's.
    pub fn detached(&self, name: impl AsRef<str>, token: &str) -> Result<Detached, Error> {
        let name = self.name(name.as_ref())?;
        Ok(Detached::new(self.engine.clone(), name, token)?)
    }

    /// The names that are held or waited for, as far as the store's index knows: on Redis, locks that were renewed
    /// at least once or have had a waiter. A hint for operators, never a basis for a decision.
    pub async fn names(&self) -> Result<Vec<String>, Error> {
        let keys = self
            .run(|engine| async move { engine.store.index(None).await })
            .await?;
        let names = keys.iter().filter_map(|key| self.naming.name_in(key));
        Ok(names.map(str::to_owned).collect())
    }

    /// Where its locks live, for people: the address of the store, without user and password.
    pub fn store(&self) -> &str {
        self.engine.store.label()
    }

    /// The identity of this client, as it stands in the tokens of its leases.
    pub fn id(&self) -> ClientId {
        self.engine.identity.client
    }

    /// Ends all waiting, releases every lease that is still held (they become *lost*), takes no more requests, and
    /// waits until the store has confirmed it all, or the TTLs have passed if it does not answer.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// The name of a lock, within the namespace and the key template.
    pub(crate) fn name(&self, name: &str) -> Result<LockName, Invalid> {
        self.naming.name(name)
    }

    async fn ask(&self, name: LockName, step: Step) -> Result<Reply, Error> {
        self.run(|engine| async move { engine.store.apply(&name, step).await })
            .await
    }

    /// Does `work` on the client's own thread.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Engine>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.engine.is_closed() {
            return Err(StoreError::closed().into());
        }
        let (reply, answer) = oneshot::channel();
        let work = work(self.engine.clone());
        self.engine
            .tasks
            .spawn(async move { drop(reply.send(work.await)) });
        Ok(answer.await.map_err(|_| StoreError::closed())??)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .field("naming", &self.naming)
            .finish_non_exhaustive()
    }
}

/// Settings of a client.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    namespace: Option<String>,
    key_template: Option<String>,
    host: Option<String>,
    request_timeout: Duration,
    patience: Duration,
    clock: Clock,
    metric_names: Vec<String>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            namespace: None,
            key_template: None,
            host: None,
            request_timeout: Duration::from_secs(2),
            patience: Duration::from_secs(30),
            clock: Clock::system(),
            metric_names: Vec::new(),
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

    /// How long one request may take: this, or a third of the TTL if that is less. 10 ms to 60 s; default 2 s.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// How long a waiter that is queued puts up with a store that does not answer. At most 24 h; default 30 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The clock that leases are judged by, and that embedded stores judge expiry by. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
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

    /// Connects to the store at `url`; see [`Client::connect`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting or URL, [`Error::Store`] when the store does not answer as it should.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let target = store::Target::parse(url)?;
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

    /// Looks whether the store at `url` is fit for locks. On Redis it uses a scratch lock `leasehold:doctor:*`, of which nothing is
    /// left, and changes nothing else. Takes about five seconds, or well under one if it is quick. Always in real time.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad URL, [`Error::Store`] when there is no store that answers. Whatever else is wrong with it
    /// is in the report, and what it refuses to tell is no error.
    pub async fn examine(self, url: &str, how: &Examination) -> Result<Report, Error> {
        let target = store::Target::parse(url)?;
        let how = how.clone().keys(self.naming()?.pattern(&how.keys));
        let limit = self.request_timeout;
        let (reply, answer) = oneshot::channel();
        // On a thread of its own: the caller may be on any executor.
        let work = move || async move {
            let report = store::examine(&target, &how, &Clock::system(), limit).await;
            // Fails if the caller has gone.
            drop(reply.send(report));
        };
        let _started: Tasks = Tasks::on_thread("leasehold-doctor".into(), work)
            .map_err(|error| StoreError::new("client", StoreErrorKind::Unavailable, error))?;
        answer.await.map_err(|_| StoreError::closed())?
    }

    /// A client of `memory`, which other clients of this process may share.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad setting, [`Error::Store`] when the system refuses a thread.
    pub fn embedded(self, memory: &Memory) -> Result<Client, Error> {
        self.build(|attach, _| Ok(Arc::new(memory.attach(attach))))
    }

    /// Its template around its namespace.
    fn naming(&self) -> Result<Naming, Invalid> {
        let namespace = self.namespace.as_deref().map(Namespace::new).transpose()?;
        let template = self.key_template.as_deref().map(KeyTemplate::new);
        Ok(Naming::new(
            template.transpose()?.as_ref(),
            namespace.as_ref(),
        ))
    }

    pub(crate) fn build(
        self,
        open: impl FnOnce(Attach, &Tasks) -> Result<Arc<dyn Store>, Error>,
    ) -> Result<Client, Error> {
        let check = |what, value: Duration, least, most| {
            if value < least || value > most {
                let why = format!("must be from {least:?} to {most:?}");
                return Err(Invalid::new(what, &format!("{value:?}"), why));
            }
            Ok(())
        };
        check(
            "request timeout",
            self.request_timeout,
            Duration::from_millis(10),
            Duration::from_secs(60),
        )?;
        check(
            "patience",
            self.patience,
            Duration::ZERO,
            Duration::from_secs(24 * 60 * 60),
        )?;
        let naming = self.naming()?;
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
            Tasks::here()
                .inspect(|tasks| drop(tasks.handle().spawn(main())))
                .ok_or_else(no_runtime)
        } else {
            Tasks::on_thread(format!("lh-{}", identity.client), main)
                .map_err(|error| StoreError::new("client", StoreErrorKind::Unavailable, error))
        }?;
        let attach = Attach {
            client: identity.client,
            listener: wire.listener(),
        };
        let telemetry = Telemetry::here(&self.metric_names);
        let store = open(attach, &tasks)?;
        #[cfg(feature = "metrics")]
        let store = store::counted::counted(store, telemetry.clone());
        let plan = Plan {
            clock: self.clock,
            tasks,
            identity,
            patience: self.patience,
            telemetry,
        };
        let (engine, run) = Engine::new(store, plan, &wire);
        // Fails only if the thread has ended, which every later request will say.
        drop(start.send(run.boxed()));
        Ok(Client { engine, naming })
    }
}

fn no_runtime() -> StoreError {
    StoreError::new(
        "client",
        StoreErrorKind::Unavailable,
        "virtual time needs a tokio runtime to follow",
    )
}

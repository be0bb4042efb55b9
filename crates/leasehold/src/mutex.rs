//! A named lock and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Invalid, Label, LockName, Mode, Ttl};

use crate::error::{Error, StoreError, within};
use crate::kind::{Exclusive, Kind, Shared, Slots};
use crate::lease::{
    AcquireRequest, EngineHandle, Lease, OnWait, Pending, Terms, WaitLimit, WaitStatus,
};
use crate::telemetry::Outcome;

/// A mutex: one holder at a time, across all processes that use the same store and name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// use std::time::Duration;
///
/// let orders = client.mutex("orders:42").ttl(Duration::from_secs(10)).note("packing");
/// let lease = orders.acquire_within(Duration::from_secs(5)).await?;
/// println!("packing under fence {}", lease.fence());
/// lease.release().await?;
/// # client.close().await; Ok(()) }
/// ```
///
/// Cheap to make and to clone. Clients are served in the order in which they came, and so are the tasks of one client. A
/// lock that is released goes first to tasks of the same client, without a round trip. While other clients wait, this happens at most
/// 16 times in a row and for at most 50 ms.
///
/// # Not re-entrant
///
/// A task that holds the lock and acquires it again waits for itself: [`Mutex::acquire`] never ends, [`Mutex::acquire_within`] ends at its
/// limit, and [`Mutex::try_acquire`] returns `None`. The same is true of two clones of one mutex, and of two mutexes with one name. If the
/// holder is a lease of the same [`Client`](crate::Client), [`Timeout::by_this_client`](crate::Timeout::by_this_client) is true, and the
/// text of [`Error::Timeout`] says "held by this client". Pass the [`Lease`] down the call instead.
pub type Mutex = Lock<Exclusive>;

/// The readers of a [`RwLock`]: any number of them hold beside each other.
///
/// It has the settings and verbs of a [`Mutex`]. Readers of one [`Client`](crate::Client) share one hold in the store, so all but the
/// first join without a request. They stop joining when a writer waits, in this client or in another one. The settings are those of each
/// lease; the store shows the note of the reader that came first.
pub type ReadLock = Lock<Shared>;

/// A semaphore: up to N holders at a time, each in a slot with a number of its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// let seats = client.semaphore("licence:cad", 4);
/// let permit = seats.acquire().await?;
/// println!("seat {} of 4", permit.slot().number);
/// permit.release().await?;
/// # client.close().await; Ok(()) }
/// ```
///
/// It has the settings and verbs of a [`Mutex`], except [`linger`](Lock::linger), which has no effect. A permit is a lease: it renews
/// itself, ends with the TTL of a holder that crashed, and cannot be given back twice. Waiters are served in the order in which they came.
///
/// N is of the request, and not stored: a request is admitted while fewer than its N hold. A larger N counts at once, and a smaller one
/// waits until enough have left. All programs that use a name should agree on N. A mutex or a read/write lock of the same name excludes
/// the permits. A quorum has no semaphores.
pub type Semaphore = Lock<Slots>;

/// A read/write lock: one writer alone, or any number of readers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// let config = client.rw_lock("config");
/// let read = config.read().acquire().await?;
/// assert!(config.write().try_acquire().await?.is_none());
/// read.release().await?;
/// let write = config.write().acquire().await?;
/// println!("reloading under fence {}", write.fence());
/// write.release().await?;
/// # client.close().await; Ok(()) }
/// ```
///
/// All wait in one line: readers that follow each other enter together, and a reader that comes after a waiting writer waits behind it. So
/// neither starves. A lease is not changed from one kind to the other: two readers that both wanted to write would wait for each other for
/// ever. Give the lease back, and acquire the other one. A quorum has no readers.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct RwLock {
    engine: EngineHandle,
    name: Result<LockName, Invalid>,
}

impl RwLock {
    pub(crate) fn new(engine: EngineHandle, name: Result<LockName, Invalid>) -> Self {
        Self { engine, name }
    }

    /// Its readers.
    pub fn read(&self) -> ReadLock {
        Lock::new(self.engine.clone(), self.name.clone(), Ok(Mode::Shared))
    }

    /// Its writer: the mutex of this name.
    pub fn write(&self) -> Mutex {
        let mode = Ok(Mode::Exclusive);
        Lock::new(self.engine.clone(), self.name.clone(), mode)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RwLock");
        debug.field("name", &self.name).finish_non_exhaustive()
    }
}

/// A named lock of some kind, and the settings of its leases: a [`Mutex`], a [`ReadLock`] or a [`Semaphore`].
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<K: Kind> {
    pub(crate) engine: EngineHandle,
    pub(crate) name: Result<LockName, Invalid>,
    mode: Result<Mode, Invalid>,
    ttl: Duration,
    note: Result<Label, Invalid>,
    auto_renew: bool,
    max_hold: Option<Duration>,
    linger: Duration,
    at_least: Duration,
    on_wait: Option<OnWait>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        self.of_kind()
    }
}

impl<K: Kind> Lock<K> {
    pub(crate) fn new(
        engine: EngineHandle,
        name: Result<LockName, Invalid>,
        mode: Result<Mode, Invalid>,
    ) -> Self {
        let ttl = Duration::from_secs(30);
        Self {
            engine,
            name,
            mode,
            ttl,
            note: Label::new("note", ""),
            auto_renew: true,
            max_hold: None,
            linger: Duration::ZERO,
            at_least: Duration::ZERO,
            on_wait: None,
            kind: PhantomData,
        }
    }

    /// A copy of it whose leases are of this kind. What they are in the store depends on its mode alone.
    pub(crate) fn of_kind<L: Kind>(&self) -> Lock<L> {
        Lock {
            engine: self.engine.clone(),
            name: self.name.clone(),
            mode: self.mode.clone(),
            ttl: self.ttl,
            note: self.note.clone(),
            auto_renew: self.auto_renew,
            max_hold: self.max_hold,
            linger: self.linger,
            at_least: self.at_least,
            on_wait: self.on_wait.clone(),
            kind: PhantomData,
        }
    }

    /// How long a lease lasts without renewal. The lock of a crashed holder is free after this time. 10 ms to 24 h; default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// A text that others see beside the holder, such as the name of the work. At most 128 bytes.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Label::new("note", &note.into());
        self
    }

    /// Whether a lease renews itself every third of its TTL. Default: yes.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// The longest time that a lease may be held. Then it is lost, so a holder that hangs does not keep the lock. At least 10 ms;
    /// default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long the client keeps the lock after a release. If a task of this client acquires the lock again within that time, no
    /// request is needed, apart from one now and then for new fences.
    ///
    /// The client releases the lock at once when another client waits for it. A client that only tries finds the lock busy, and so does
    /// another kind of program that shares the key. The setting has no effect where the store cannot notify the client of waiters: in
    /// `local:`, and for a Redis user that may not subscribe to the client's channel. Default: zero.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// The least time that the lock stays taken, from the grant of each lease. It keeps a host whose clock is a little behind from
    /// repeating a short job. At most 24 h; default: zero.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let nightly = client.mutex("nightly").at_least(Duration::from_secs(60));
    /// nightly.try_run(async |_| Ok::<_, leasehold::Error>(println!("sent"))).await?;
    /// assert!(nightly.try_acquire().await?.is_none());     // until a minute after the grant
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// - **It counts for every end of a lease**: a release, a drop, a `?`, a panic, the end of [`Lease::run`] or
    ///   [`Client::close`](crate::Client::close). It does not count for a grant that arrives after the acquisition was dropped.
    /// - **No task gets the lock until then**, not even another task of this client. Only
    ///   [`Client::break_lock`](crate::Client::break_lock) frees it sooner.
    /// - With [`Mutex::linger`]: the lock lingers only if the time is over at the release.
    /// - With [`Lease::release_after`]: the later time counts. With [`Lease::detach`]: the time given there counts.
    /// - **A lost lease is not kept**, for any cause, [`Mutex::max_hold`] included: another owner may have the lock by then.
    /// - If the process crashes, or the store cannot be reached at the end, the lock ends by its [TTL](Mutex::ttl).
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = at_least;
        self
    }

    /// Calls `watch` each time the store answers that the lock is busy, with the holder and the number of waiters ahead. The call may
    /// come from the client's I/O, so `watch` must return at once. If it panics, it is not called again for this acquisition.
    ///
    /// ```
    /// # let client = leasehold::Client::embedded()?;
    /// let orders = client.mutex("orders:42").on_wait(|status| {
    ///     eprintln!("{} is held, {} ahead, {:?} so far", status.name, status.ahead, status.waited);
    /// });
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn on_wait(mut self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(watch));
        self
    }

    /// Waits for the lock, in a queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// println!("packing under fence {}", lease.fence());
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not answer; in the queue, only after the
    /// [outage timeout](crate::ClientBuilder::outage_timeout).
    /// [`Error::Invalid`] for bad settings. Never [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue and loses the place in it. If the grant arrives later, the client releases the lock in the
    /// background. So in a `select!` in a loop, poll one pinned future, or use [`Mutex::acquire_owned`] in a task.
    #[doc(alias = "lock")]
    pub async fn acquire(&self) -> Result<Lease<K>, Error> {
        self.request(WaitLimit::Forever)
            .await?
            .ok_or_else(|| StoreError::closed().into())
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    /// use leasehold::Error;
    ///
    /// let orders = client.mutex("orders:42");
    /// let held = orders.acquire().await?;
    /// match orders.acquire_within(Duration::from_millis(20)).await {
    ///     Err(Error::Timeout(timeout)) => println!("held by {:?}", timeout.holder),
    ///     other => drop(other?),
    /// }
    /// # drop(held);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`], with the holder, when the lock was busy until the limit; otherwise as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Lease<K>, Error> {
        self.request(WaitLimit::Within(limit))
            .await?
            .ok_or_else(|| StoreError::closed().into())
    }

    /// Asks once: `None` when the lock is busy.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let orders = client.mutex("orders:42");
    /// match orders.try_acquire().await? {
    ///     Some(lease) => lease.release().await?,
    ///     None => println!("another worker has it"),
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    #[doc(alias = "try_lock")]
    pub async fn try_acquire(&self) -> Result<Option<Lease<K>>, Error> {
        self.request(WaitLimit::Once).await
    }

    /// [`Mutex::acquire`] as a future that owns the mutex and so is `'static`, for a spawned task.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let waiting = tokio::spawn(client.mutex("orders:42").acquire_owned());
    /// let lease = waiting.await.expect("no panic")?;
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    #[doc(alias = "lock_owned")]
    pub async fn acquire_owned(self) -> Result<Lease<K>, Error> {
        self.acquire().await
    }

    /// [`Mutex::acquire_within`] as a future that owns the mutex and so is `'static`, for a spawned task.
    ///
    /// # Errors
    /// As [`Mutex::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn acquire_within_owned(self, limit: Duration) -> Result<Lease<K>, Error> {
        self.acquire_within(limit).await
    }

    /// [`Mutex::try_acquire`] as a future that owns the mutex and so is `'static`, for a spawned task.
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    #[doc(alias = "try_lock_owned")]
    pub async fn try_acquire_owned(self) -> Result<Option<Lease<K>>, Error> {
        self.try_acquire().await
    }

    /// Waits for the lock, runs `work` under it, and releases it: [`Mutex::acquire`], then [`Lease::run`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let stock = client.mutex("stock");
    /// let fence = stock.run(async |lease| Ok::<_, leasehold::Error>(lease.fence())).await?;
    /// println!("worked under fence {fence}");
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::acquire`], before `work` began. Then as [`Lease::run`]: the error of `work`, or [`Error::Lost`].
    ///
    /// # Cancel safety
    /// Dropping the future while it waits leaves the queue. Later it drops `work` at its current `.await` and releases the lock in the
    /// background.
    #[doc(alias("with_lock", "using"))]
    pub async fn run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Lease<K>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.acquire().await?.run(work).await
    }

    /// Waits for the lock for at most `limit`, runs `work` under it, and releases it: [`Mutex::acquire_within`], then [`Lease::run`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let (stock, limit) = (client.mutex("stock"), std::time::Duration::from_secs(5));
    /// let work = async |lease: &leasehold::Lease| Ok::<_, leasehold::Error>(lease.fence());
    /// println!("worked under fence {}", stock.run_within(limit, work).await?);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::run`], and [`Error::Timeout`] when the lock was busy all the time.
    ///
    /// # Cancel safety
    /// As [`Mutex::run`].
    pub async fn run_within<T, E: From<Error>>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&Lease<K>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.acquire_within(limit).await?.run(work).await
    }

    /// Runs `work` if the lock is free: [`Mutex::try_acquire`], then [`Lease::run`]. `None` when the lock is busy; then `work` does not
    /// begin.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// match client.mutex("report").try_run(async |_| Ok::<_, leasehold::Error>("sent")).await? {
    ///     Some(said) => println!("{said}"),
    ///     None => println!("another host sends it"),
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::run`].
    ///
    /// # Cancel safety
    /// As [`Mutex::run`].
    pub async fn try_run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Lease<K>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        match self.try_acquire().await? {
            Some(lease) => lease.run(work).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) async fn request(&self, limit: WaitLimit) -> Result<Option<Lease<K>>, Error> {
        let lease = self.take(limit).await?;
        if let Some(lease) = &lease {
            self.keep(lease);
        }
        Ok(lease)
    }

    /// The time of [`Mutex::at_least`] counts for this lease.
    pub(crate) fn keep(&self, lease: &Lease<K>) {
        if !self.at_least.is_zero() {
            lease.keep_at_least(self.at_least);
        }
    }

    /// Takes the lock, without a least time.
    pub(crate) async fn take(&self, limit: WaitLimit) -> Result<Option<Lease<K>>, Error> {
        let engine = &self.engine;
        let (name, mode) = (self.name.as_ref().ok(), self.mode.as_ref().ok());
        let asked = engine.telemetry.ask(name, mode.copied(), &engine.clock);
        let answer = self.ask(limit).await;
        if let Some(asked) = asked {
            match &answer {
                Ok(Some(lease)) => lease.begin(asked),
                Ok(None) => asked.refused(Outcome::Busy),
                Err(error) => asked.refused(Outcome::Failed(error)),
            }
        }
        answer
    }

    async fn ask(&self, limit: WaitLimit) -> Result<Option<Lease<K>>, Error> {
        let name = self.name.clone()?;
        let ttl = self.engine.ttl(self.ttl)?;
        if let Some(max_hold) = self.max_hold.filter(|max_hold| *max_hold < Ttl::MIN) {
            let why = "must be at least 10 ms";
            return Err(Invalid::new("max_hold", &format!("{max_hold:?}"), why).into());
        }
        let longest = self.engine.store.longest_ttl();
        within("at_least", self.at_least, Duration::ZERO, longest)?;
        let request = AcquireRequest {
            name,
            terms: Terms {
                ttl,
                note: self.note.clone()?,
                mode: self.mode.clone()?,
            },
            auto_renew: self.auto_renew,
            max_hold: self.max_hold,
            linger: self.linger,
            on_wait: self.on_wait.clone(),
            limit,
        };
        Pending::begin(&self.engine, request).await
    }
}

impl<K: Kind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

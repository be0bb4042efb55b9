//! A named lock and how it is to be acquired. Must never do I/O by being made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Invalid, Label, LockName, Ttl};

use crate::error::{Error, StoreError, within};
use crate::lease::{
    Engine, Lease, OnWait, Pending, Request, RunOutcome, Terms, WaitLimit, WaitStatus,
};

/// A mutex: one holder at a time, across all processes that use the same store and name.
///
/// Cheap to make and to clone. Clients are served in the order in which they came, and so are the tasks of one client. A
/// lock that is released goes first to tasks of the same client, without a round trip, up to 16 times in a row or for
/// 50 ms while other clients wait.
///
/// # Not re-entrant
///
/// A task that holds the lock and acquires it again waits for itself: [`Mutex::acquire`] for ever, [`Mutex::acquire_within`] until its
/// limit; [`Mutex::try_acquire`] says busy. So do two clones of one mutex, and two mutexes of the same name. The text of
/// [`Error::Timeout`] says "held by this client" when the holder is a lease of the same [`Client`](crate::Client), and
/// [`Timeout::by_this_client`](crate::Timeout::by_this_client) is true. Pass the [`Lease`] down to what needs it instead.
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is acquired"]
pub struct Mutex {
    engine: Arc<Engine>,
    name: Result<LockName, Invalid>,
    ttl: Duration,
    note: Result<Label, Invalid>,
    auto_renew: bool,
    max_hold: Option<Duration>,
    linger: Duration,
    at_least: Duration,
    on_wait: Option<OnWait>,
}

impl Mutex {
    pub(crate) fn new(engine: Arc<Engine>, name: Result<LockName, Invalid>) -> Self {
        let ttl = Duration::from_secs(30);
        Self {
            engine,
            name,
            ttl,
            note: Label::new("note", ""),
            auto_renew: true,
            max_hold: None,
            linger: Duration::ZERO,
            at_least: Duration::ZERO,
            on_wait: None,
        }
    }

    /// How long a lease lasts without renewal, and so how long a crashed holder blocks the others. 10 ms to 24 h;
    /// default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// What others are told this holder is doing; at most 128 bytes.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Label::new("note", &note.into());
        self
    }

    /// Whether a lease renews itself every third of its TTL. Default: yes.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// The longest a lease may be held: then it is lost, so that a holder that hangs cannot renew for ever. At least the
    /// shortest TTL; default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// For how long the lock stays with this client after a release, in case it is wanted here again: then acquiring it takes
    /// no round trip, but for a flight now and then for the next fences. It is given up at once when another client waits for
    /// it; one that does not wait finds it busy, and so does a program of another kind that shares the key. Where a client
    /// cannot be told of others (`local:`, or a Redis user who may not subscribe to its channel) it has no effect. Default: not
    /// at all.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// For how long the lock stays taken at least, counted from the grant of each lease. So a job that ends early is not done
    /// again by the next host, whose clock is a little behind. At most 24 h; default: not at all.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let nightly = client.mutex("nightly").at_least(Duration::from_secs(60));
    /// if let Some(ran) = nightly.try_run(async |_| "report sent").await? {
    ///     println!("{}", ran.confirmed()?);
    /// }
    /// assert!(nightly.try_acquire().await?.is_none());     // until a minute after the grant
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// - **However the lease ends**: released, dropped, by `?`, by a panic, after [`Lease::run`] or by
    ///   [`Client::close`](crate::Client::close). A lease that nobody received, because the acquisition was dropped, is not kept.
    /// - **Nobody has the lock until then**, nor has another task of this client: it is not handed on. Only
    ///   [`Client::break_lock`](crate::Client::break_lock) ends that sooner.
    /// - With [`Mutex::linger`]: the lock lingers only if the time is over at the release.
    /// - With [`Lease::release_after`]: whichever is later counts. With [`Lease::detach`]: the time given there counts.
    /// - **A lost lease is not kept**, whatever the cause, [`Mutex::max_hold`] included: the lock may be another's by then.
    /// - If the process crashes, or the store cannot be reached at the end, the lock ends by its [TTL](Mutex::ttl).
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = at_least;
        self
    }

    /// Calls `watch` each time it is known anew that the lock is busy: who holds it, and how many are ahead. It runs where that
    /// is heard, which may be in the midst of the client's I/O, and must return at once. If it panics, it is not called again for
    /// this acquisition.
    pub fn on_wait(mut self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(watch));
        self
    }

    /// Waits for the lock, in line.
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
    /// [`Error::Store`] when the store does not answer (once in line, only after the [outage timeout](crate::ClientBuilder::outage_timeout)),
    /// [`Error::Invalid`] for bad settings. Never [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line. A lock that was granted meanwhile is released in the background.
    pub async fn acquire(&self) -> Result<Lease, Error> {
        self.request(WaitLimit::Forever)
            .await?
            .ok_or_else(|| StoreError::closed().into())
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`], naming the holder, when it was busy all the time; otherwise as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Lease, Error> {
        self.request(WaitLimit::Within(limit))
            .await?
            .ok_or_else(|| StoreError::closed().into())
    }

    /// Asks once: `None` when the lock is busy.
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        self.request(WaitLimit::Once).await
    }

    /// The same as [`Mutex::acquire`], as a future that owns the mutex and so is `'static`: for a task of its own.
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
    pub async fn acquire_owned(self) -> Result<Lease, Error> {
        self.acquire().await
    }

    /// The same as [`Mutex::acquire_within`], as a future that owns the mutex and so is `'static`.
    ///
    /// # Errors
    /// As [`Mutex::acquire_within`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn acquire_within_owned(self, limit: Duration) -> Result<Lease, Error> {
        self.acquire_within(limit).await
    }

    /// The same as [`Mutex::try_acquire`], as a future that owns the mutex and so is `'static`.
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn try_acquire_owned(self) -> Result<Option<Lease>, Error> {
        self.try_acquire().await
    }

    /// Waits for the lock, runs `work` under it, and releases it: [`Mutex::acquire`], then [`Lease::run`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let ran = client.mutex("stock").run(async |lease| lease.fence()).await?;
    /// println!("worked under fence {}", ran.confirmed()?);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::acquire`], before `work` was begun; [`Error::Lost`] when the lease was lost and `work` cancelled. What became
    /// of the release is in [`RunOutcome::released`], beside the output.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line, or drops the work where it is and releases the lock in the background.
    pub async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<RunOutcome<T>, Error> {
        Ok(self.acquire().await?.run(work).await?)
    }

    /// The same, but waits for the lock for at most `limit`: [`Mutex::acquire_within`], then [`Lease::run`].
    ///
    /// # Errors
    /// As [`Mutex::run`], and [`Error::Timeout`] when the lock was busy all the time.
    ///
    /// # Cancel safety
    /// As [`Mutex::run`].
    pub async fn run_within<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<RunOutcome<T>, Error> {
        Ok(self.acquire_within(limit).await?.run(work).await?)
    }

    /// The same, if the lock is free: [`Mutex::try_acquire`], then [`Lease::run`]. `None` when the lock is busy, with `work`
    /// not begun.
    ///
    /// # Errors
    /// As [`Mutex::run`].
    ///
    /// # Cancel safety
    /// As [`Mutex::run`].
    pub async fn try_run<T>(
        &self,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<Option<RunOutcome<T>>, Error> {
        match self.try_acquire().await? {
            Some(lease) => Ok(Some(lease.run(work).await?)),
            None => Ok(None),
        }
    }

    async fn request(&self, limit: WaitLimit) -> Result<Option<Lease>, Error> {
        let engine = &self.engine;
        let asked = engine.telemetry.ask(self.name.as_ref().ok(), &engine.clock);
        let answer = self.ask(limit).await;
        match &answer {
            Ok(Some(lease)) => {
                if !self.at_least.is_zero() {
                    lease.keep_at_least(self.at_least);
                }
                lease.begin(asked);
            }
            Ok(None) => asked.busy(),
            Err(error) => asked.failed(error),
        }
        answer
    }

    async fn ask(&self, limit: WaitLimit) -> Result<Option<Lease>, Error> {
        let name = self.name.clone()?;
        let ttl = Ttl::new(self.ttl)?;
        if let Some(max_hold) = self.max_hold.filter(|max_hold| *max_hold < Ttl::MIN) {
            return Err(Invalid::new(
                "max_hold",
                &format!("{max_hold:?}"),
                "must be at least 10 ms",
            )
            .into());
        }
        within("at_least", self.at_least, Duration::ZERO, Ttl::MAX)?;
        let request = Request {
            name,
            terms: Terms {
                ttl,
                note: self.note.clone()?,
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

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

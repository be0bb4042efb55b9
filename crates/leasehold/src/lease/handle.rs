//! The handle of a held lock, the future that waits for one, and a watch on it.
//!
//! # Invariants
//!
//! - **W2** Either the caller receives the lease, or the lease is released. At each moment one of the two is certain: the engine or the
//!   dropped future releases a lease that cannot be delivered.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold_core::{Fence, LockName, Mode, Owner, Ttl};
use tokio::sync::oneshot;
#[cfg(feature = "cancellation")]
use tokio_util::sync::CancellationToken;

use super::engine::EngineHandle;
use super::hold::{Hold, LeaseEnd};
use super::waiter::{AcquireOutcome, AcquireRequest};
use crate::clock::Moment;
use crate::error::{Error, Lost, StoreError};
use crate::kind::{AnyKind, Exclusive, Fenced, Kind, Slots};
use crate::telemetry::{Asked, Observation};

/// A lock that is held until a deadline. The client renews it in the background while the `Lease` lives.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// # let client = leasehold::Client::embedded()?;
/// let lease = client.mutex("orders:42").acquire().await?;
/// tokio::select! {
///     lost = lease.lost() => eprintln!("stop: {lost}"),
///     () = async { println!("the work, under fence {}", lease.fence()) } => lease.release().await?,
/// }
/// # client.close().await; Ok(()) }
/// ```
///
/// # Life of a lease
///
/// - **Held** from the grant on. A renewal that succeeds moves the [deadline](Lease::valid_until).
/// - **Doubtful** after a renewal that failed. The lease is valid until its deadline, and the client retries the renewal.
/// - **Lost** when the deadline passes, or when the store says that another owner or no owner holds the lock. A lost lease is never
///   held again.
/// - **Released** by [`Lease::release`], or in the background when the `Lease` is dropped.
///
/// A dropped lease is released also if the program ends right after: when the last object of a client is dropped, that drop waits for the
/// release, for at most [`ClientBuilder::drop_timeout`](crate::ClientBuilder::drop_timeout). Where nothing is dropped last, call
/// [`Lease::release`] or [`Client::close`](crate::Client::close): before `std::process::exit`, and if the client is in a `static`. Else the TTL
/// may have to end the lease.
///
/// # Kinds
///
/// The lease of a [`Mutex`](crate::Mutex), and of the writer of a [`RwLock`](crate::RwLock), is a `Lease`. That of a reader is a
/// [`ReadLease`](crate::ReadLease), and that of a [`Semaphore`](crate::Semaphore) a [`Permit`](crate::Permit).
#[must_use = "dropping a lease releases the lock"]
pub struct Lease<K: Kind = Exclusive> {
    pub(super) hold: Arc<Hold>,
    pub(super) engine: EngineHandle,
    kind: PhantomData<fn() -> K>,
}

impl Lease {
    /// What [`Client::detached`](crate::Client::detached) needs to check, renew or release the lock from elsewhere while this
    /// lease lasts: `<owner>#<fence>`, the [token of its owner](Owner::token) and the fence of the store's grant. A program that has the
    /// token can release the lock. To leave the lock to such a program, see [`Lease::detach`].
    pub fn token(&self) -> String {
        self.hold.owner.with_fence(self.hold.grant)
    }
}

impl<K: Fenced> Lease<K> {
    /// The fencing token. Send it with each access to the resource, reads included. See [`Gate`](crate::Gate).
    ///
    /// Readers that hold together are a phase, and have one number. It is above that of each writer before them, and below that of each
    /// writer after them. For a reader it is `None` if the store has no such number.
    ///
    /// A lease among [several](crate::Leases) has `None` if it is a permit: the token of its [slot](Lease::slot) says nothing about others.
    pub fn fence(&self) -> K::Fence {
        let is_fenced = self.hold.is_fenced() && self.hold.slot.is_none();
        K::fence(is_fenced.then_some(self.hold.fence))
    }
}

/// A lease among [several](crate::Leases).
impl Lease<AnyKind> {
    /// The slot that it has, if it is a permit.
    pub fn slot(&self) -> Option<Slot> {
        let fence = self.hold.fence;
        self.hold.slot.map(|number| Slot { number, fence })
    }

    /// The token of an exclusive lease, as [`Lease::token`]: no other kind is checked, renewed or released from elsewhere.
    pub fn token(&self) -> Option<String> {
        let token = || self.hold.owner.with_fence(self.hold.grant);
        (self.mode() == Mode::Exclusive).then(token)
    }
}

impl Lease<Slots> {
    /// The slot that this permit has.
    pub fn slot(&self) -> Slot {
        Slot {
            number: self.hold.slot.unwrap_or_default(),
            fence: self.hold.fence,
        }
    }
}

/// A slot of a semaphore, as a [`Permit`](crate::Permit) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Slot {
    /// Its number, from 1 to the number of slots. No two permits that are held have one number, so it may name a port or a directory.
    pub number: u16,
    /// Its fencing token, which rises from holder to holder of this slot. Tokens of different slots say nothing about each other.
    pub fence: Fence,
}

impl<K: Kind> Lease<K> {
    pub(super) fn new(hold: Arc<Hold>, engine: EngineHandle) -> Self {
        Self {
            hold,
            engine,
            kind: PhantomData,
        }
    }

    /// The owner of the lock in the store. A client may hand a lock from task to task without a request: these leases have the same
    /// owner, and each has its own fence.
    pub fn owner(&self) -> &Owner {
        &self.hold.owner
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// How the lock is held: alone, beside other readers, or in a slot.
    pub fn mode(&self) -> Mode {
        self.hold.mode
    }

    /// The key of the lock in the store.
    pub(crate) fn key(&self) -> &str {
        self.hold.name.key()
    }

    /// The deadline of the lease, unless it is renewed before. A lease that was waited for may begin with three seconds or less. The
    /// client renews it to its TTL within one second.
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }

    /// The time from now to the deadline, by a clock that counts suspend. Zero when the lease is lost.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// Whether the last renewal failed, while the deadline has not passed. The next renewal may succeed.
    pub fn is_doubtful(&self) -> bool {
        self.doubt().is_some()
    }

    /// Why the last renewal failed, while the deadline has not passed.
    pub fn doubt(&self) -> Option<String> {
        self.hold.doubted().filter(|_| !self.is_lost())
    }

    /// Whether the lease is over: its deadline has passed, or the store says that this owner does not hold the lock.
    pub fn is_lost(&self) -> bool {
        self.hold.loss().is_some()
    }

    /// Why the lease is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        self.hold.loss()
    }

    /// Waits until the lease is lost. Put it in a `select!` beside the work. To wait in another task or struct, use
    /// [`Lease::watch`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?; let ttl = std::time::Duration::from_millis(60);
    /// let lease = client.mutex("orders:42").ttl(ttl).acquire().await?;
    /// client.break_lock("orders:42", lease.fence()).await?; // an operator frees the lock
    /// let lost = lease.lost().await;                       // the next renewal finds out
    /// println!("{lost}");
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        self.hold.wait_lost().await
    }

    /// Renews the lease now. It lasts for `ttl` from now, and later renewals use `ttl` too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    ///
    /// let lease = client.mutex("import").ttl(Duration::from_secs(10)).acquire().await?;
    /// lease.extend(Duration::from_secs(600)).await?;       // before a step that blocks the host
    /// assert!(lease.valid_for() > Duration::from_secs(500));
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost. [`Error::Store`] when the store gave no verdict: the lease is held until its deadline.
    /// [`Error::Invalid`] for a TTL out of bounds.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the renewal.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = self.engine.ttl(ttl)?;
        let (reply, answer) = oneshot::channel();
        self.hold
            .follow_until(self.engine.clock.now().after(ttl.get()));
        self.engine.extend(&self.hold.owner, ttl, reply);
        match answer.await {
            // Its stay may go on without it.
            Ok(Ok(())) if self.hold.stay.is_some() => {
                self.loss().map_or(Ok(()), |lost| Err(lost.into()))
            }
            Ok(result) => result,
            // It is not renewed any more.
            Err(_) => Err(self
                .loss()
                .map_or_else(|| StoreError::closed().into(), Error::Lost)),
        }
    }

    /// Releases the lock, and grants it to the first waiter. If the time of [`Mutex::at_least`](crate::Mutex::at_least) is not over, the
    /// lock stays taken until then.
    ///
    /// If the lock goes to the next task of this client, or lingers, no request is sent to the store. Then only the deadline says whether
    /// the lease was held until the release: a lock that was broken a moment ago is not noticed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire().await?;
    /// println!("the work");
    /// match lease.release().await {
    ///     Err(leasehold::Error::Lost(lost)) => eprintln!("check the work: {lost}"),
    ///     other => other?,
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost before: work done under it may have been unprotected. [`Error::Store`] when
    /// the store did not confirm: the client retries the release in the background, and the TTL ends the lease at the latest.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release: the client completes it in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.give_back(None).await
    }

    /// Ends the lease, but the lock stays taken for `keep` from now, or until the end of [`Mutex::at_least`](crate::Mutex::at_least) if
    /// that is later. No client repeats the work until then. A lease that was lost cannot be kept.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// use std::time::Duration;
    ///
    /// let report = client.mutex("report");
    /// let lease = report.acquire().await?;
    /// lease.release_after(Duration::from_secs(60)).await?;
    /// assert!(report.try_acquire().await?.is_none());      // for a minute
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lease::release`], and [`Error::Invalid`] when `keep` is not 10 ms to 24 h: then the lock is released in the background.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the release: the lock stays taken for `keep`. Before the first poll, the
    /// future is a lease, and dropping it releases the lock.
    pub async fn release_after(self, keep: Duration) -> Result<(), Error> {
        let keep = self.engine.ttl(keep)?;
        self.give_back(Some(keep)).await
    }

    /// Runs `work` under the lease, then releases the lease. If the lease is lost first, `work` is cancelled at its next `.await`.
    ///
    /// ```
    /// # async fn count(fence: leasehold::Fence) -> Result<u32, std::io::Error> { Ok(7) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("stock").acquire().await?;
    /// let left = lease
    ///     .run(async |lease| {
    ///         let left = count(lease.fence()).await?;
    ///         Ok::<_, Box<dyn std::error::Error>>(left + 1)
    ///     })
    ///     .await?;                                         // the work failed, or the lease was lost
    /// assert_eq!(left, 8);
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// `Ok` means: the work was done to its end, and the lease was not lost until its release. If the store does not confirm the release, it
    /// goes on in the background, and the TTL ends the lease at the latest. To tell these cases apart, use [`Lease::release`].
    ///
    /// The error type is that of the work. It takes the errors of this library as well: a type of the program has a `From<leasehold::Error>`,
    /// and `Box<dyn Error + Send + Sync>` or `anyhow::Error` are fine. Where nothing else names the type, name it at an `Ok`, as here: else
    /// the compiler asks for type annotations (E0282, E0283).
    ///
    /// # Errors
    /// - The error of `work`. It comes first: then the result of the release is dropped.
    /// - [`Error::Lost`] when the lease was lost. Either `work` was cancelled, or it ended and the loss was noticed after it: some of it may
    ///   have been unprotected.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` at its current `.await` and releases the lease in the background.
    pub async fn run<T, E: From<Error>>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let output = unless_lost(self.lost(), work(&self)).await;
        done(output.map_err(Error::from)?, self.release().await)
    }

    /// A watch on this lease for other tasks, threads and structs: see [`LossWatch`]. It does not keep the lease.
    pub fn watch(&self) -> LossWatch {
        LossWatch {
            hold: self.hold.clone(),
        }
    }

    /// The lock stays taken for this long from its grant. Called once the user has the lease: an undelivered lease is not kept.
    pub(crate) fn keep_at_least(&self, at_least: Duration) {
        self.hold.keep_at_least(at_least);
    }

    /// The user that asked for the lease has received it.
    pub(crate) fn begin(&self, asked: Asked<'_>) {
        if let Some(ended) = self.hold.begin(asked.acquired(self.hold.fence)) {
            let telemetry = &self.engine.telemetry;
            telemetry.observe(Observation::Ended(&ended));
        }
    }

    pub(super) async fn give_back(self, keep: Option<Ttl>) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.engine.release(&self.hold, keep, Some(reply));
        answer.await.map_err(|_| StoreError::closed())?
    }
}

impl<K: Kind> Drop for Lease<K> {
    fn drop(&mut self) {
        // After `release` the hold is retired and this does nothing.
        self.engine.release(&self.hold, None, None);
    }
}

impl<K: Kind> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug
            .field("name", &self.name())
            .field("fence", &self.hold.fence)
            .field("valid_for", &self.valid_for());
        debug.finish_non_exhaustive()
    }
}

/// The output of `work`, unless the loss comes first: then `work` is dropped at its current `.await`.
pub(crate) async fn unless_lost<T>(
    lost: impl Future<Output = Lost>,
    work: impl Future<Output = T>,
) -> Result<T, Lost> {
    tokio::select! {
        // Loss first: work that goes on beside it may be unprotected.
        biased;
        lost = lost => Err(lost),
        output = work => Ok(output),
    }
}

/// The result of work under leases that were released after it. A loss makes it an error. What else a release says does not change what is
/// done: the leases lasted until then.
pub(crate) fn done<T, E: From<Error>>(
    output: Result<T, E>,
    released: Result<(), Error>,
) -> Result<T, E> {
    let output = output?;
    match released {
        Err(lost) if lost.is_lost() => Err(lost.into()),
        Ok(()) | Err(_) => Ok(output),
    }
}

/// Watches a [`Lease`] from another task, thread or struct. It is `Clone + Send + Sync + 'static`.
///
/// A watch does not keep the lease: the lock is released when the [`Lease`] is released or dropped. A watch belongs to one lease. It
/// does not follow the lock to the next task of the same client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::LeaseEnd;
/// # let client = leasehold::Client::embedded()?;
/// let lease = client.mutex("reports").acquire().await?;
/// let watch = lease.watch();
/// let alarm = tokio::spawn(async move {
///     match watch.ended().await {
///         LeaseEnd::Lost(lost) => eprintln!("stop: {lost}"),
///         _ => println!("given back"),
///     }
/// });
/// lease.release().await?;
/// alarm.await.expect("no panic");
/// # client.close().await; Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a watch does nothing until it is asked"]
pub struct LossWatch {
    hold: Arc<Hold>,
}

impl LossWatch {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// The fencing token of the lease.
    pub fn fence(&self) -> Fence {
        self.hold.fence
    }

    /// The deadline of the lease, unless it is renewed before. `None` once the lease has ended.
    pub fn valid_until(&self) -> Option<Moment> {
        // First: after the end, the deadline is that of the next lease.
        let until = self.hold.valid_until();
        self.hold.end().is_none().then_some(until)
    }

    /// The time from now to the deadline, by a clock that counts suspend. Zero once the lease has ended.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// Whether the lease was lost. A lease that was released is not lost later.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the lease was lost, if it was.
    pub fn loss(&self) -> Option<Lost> {
        self.hold.loss()
    }

    /// How the lease ended, if it has.
    pub fn end(&self) -> Option<LeaseEnd> {
        self.hold.end()
    }

    /// Waits until the lease is lost. If the lease is released, this never returns: put it in a `select!` beside the work, and use
    /// [`LossWatch::ended`] in a spawned task.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("reports").acquire().await?;
    /// let watch = lease.watch();
    /// tokio::select! {
    ///     lost = watch.lost() => eprintln!("stop: {lost}"),
    ///     () = async { println!("the work") } => lease.release().await?,
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        self.hold.wait_lost().await
    }

    /// A token that is cancelled when the lease is lost, for code that takes one: a server's graceful shutdown, a tree of tasks. It needs no
    /// task, and each call gives another child of one token: cancelling it yourself concerns nobody else.
    ///
    /// It is **not** cancelled when the lease is released, dropped or detached. A loss stops work that is no longer protected; the end of the
    /// work is for the program to say. To end tasks with the future that holds the lease, keep a
    /// [drop guard](CancellationToken::drop_guard) of the token beside it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("reports").acquire().await?;
    /// let token = lease.watch().cancellation_token();
    /// let work = tokio::spawn(async move {
    ///     token.run_until_cancelled(async { "the report" }).await
    /// });
    /// assert_eq!(work.await.expect("no panic"), Some("the report"));
    /// lease.release().await?;
    /// # client.close().await; Ok(()) }
    /// ```
    #[cfg(feature = "cancellation")]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.hold.cancelled_at_loss()
    }

    /// Waits until the lease is lost or released.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("reports").acquire().await?;
    /// let watch = lease.watch();
    /// lease.release().await?;
    /// assert!(matches!(watch.ended().await, leasehold::LeaseEnd::Released));
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. An end is final, so the next call returns it at once.
    pub async fn ended(&self) -> LeaseEnd {
        self.hold.wait_end().await
    }
}

impl fmt::Debug for LossWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossWatch")
            .field("name", &self.name())
            .field("fence", &self.fence())
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

/// An acquisition under way. Dropping it ends the acquisition and leaves nothing behind.
#[must_use = "dropping it ends the acquisition"]
pub(crate) struct Pending<K: Kind> {
    engine: EngineHandle,
    name: LockName,
    id: u64,
    answered: oneshot::Receiver<AcquireOutcome>,
    over: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Pending<K> {
    /// Begins an acquisition.
    pub(crate) fn begin(engine: &EngineHandle, request: AcquireRequest) -> Self {
        let (answer, answered) = oneshot::channel();
        let name = request.name.clone();
        Self {
            id: engine.ask(request, answer),
            engine: engine.clone(),
            name,
            answered,
            over: false,
            kind: PhantomData,
        }
    }
}

impl<K: Kind> Future for Pending<K> {
    type Output = Result<Option<Lease<K>>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.answered).poll(context));
        self.over = true;
        let outcome = outcome.unwrap_or_else(|_| Err(StoreError::closed().into()));
        let lease = |hold| Lease::new(hold, self.engine.clone());
        Poll::Ready(outcome.map(|held| held.map(lease)))
    }
}

impl<K: Kind> Drop for Pending<K> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // From here on no lease can be delivered.
        self.answered.close();
        match self.answered.try_recv() {
            Ok(Ok(Some(hold))) => self.engine.release(&hold, None, None),
            Ok(_) => {}
            Err(_) => self.engine.leave(&self.name, self.id),
        }
    }
}

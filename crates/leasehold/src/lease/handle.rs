//! The handle of a held lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Owner, Ttl};
use tokio::sync::oneshot;

use super::engine::EngineHandle;
use super::hold::Hold;
use crate::clock::Moment;
use crate::error::{Error, Lost, StoreError};
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
#[must_use = "dropping a lease releases the lock"]
pub struct Lease {
    pub(super) hold: Arc<Hold>,
    pub(super) engine: EngineHandle,
}

impl Lease {
    pub(super) fn new(hold: Arc<Hold>, engine: EngineHandle) -> Self {
        Self { hold, engine }
    }

    /// The fencing token. Send it with each access to the resource, reads included. See [`Gate`](crate::Gate).
    pub fn fence(&self) -> Fence {
        self.hold.fence
    }

    /// The owner of the lock in the store. A client may hand a lock from task to task without a request: these leases have the same
    /// owner, and each has its own fence.
    pub fn owner(&self) -> &Owner {
        &self.hold.owner
    }

    /// What [`Client::detached`](crate::Client::detached) needs to check, renew or release the lock from elsewhere while this
    /// lease lasts: `<owner>#<fence>`, the [token of its owner](Owner::token) and the fence of the store's grant. A program that has the
    /// token can release the lock. To leave the lock to such a program, see [`Lease::detach`].
    pub fn token(&self) -> String {
        self.hold.owner.with_fence(self.hold.grant)
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
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
        self.engine.extend(&self.hold.owner, ttl, reply);
        match answer.await {
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

impl Drop for Lease {
    fn drop(&mut self) {
        // After `release` the hold is retired and this does nothing.
        self.engine.release(&self.hold, None, None);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug
            .field("name", &self.name())
            .field("fence", &self.fence())
            .field("valid_for", &self.valid_for());
        debug.finish_non_exhaustive()
    }
}

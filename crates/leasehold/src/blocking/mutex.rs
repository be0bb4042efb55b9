//! The mutex and its leases without `async`.

use std::ops::Deref;
use std::time::Duration;

use pollster::block_on;

use crate::error::{Error, Lost};
use crate::lease::{LeaseEnd, LeaseStatus, RunOutcome, WaitStatus};

/// A blocking [`Mutex`](crate::Mutex).
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Error, blocking::Client};
///
/// let client = Client::embedded()?;
/// let orders = client.mutex("orders:42").ttl(Duration::from_secs(10));
/// match orders.acquire_within(Duration::from_secs(5)) {
///     Ok(lease) => lease.release()?,
///     Err(Error::Timeout(timeout)) => println!("held by {:?}", timeout.holder),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is acquired"]
pub struct Mutex(pub(super) crate::Mutex);

impl Mutex {
    /// Applies settings of the async mutex: `mutex.map(|mutex| mutex.ttl(ttl).note("nightly"))`.
    pub fn map(self, change: impl FnOnce(crate::Mutex) -> crate::Mutex) -> Self {
        Self(change(self.0))
    }

    /// See [`Mutex::ttl`](crate::Mutex::ttl): 10 ms to 24 h, default 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|mutex| mutex.ttl(ttl))
    }

    /// See [`Mutex::note`](crate::Mutex::note): at most 128 bytes.
    pub fn note(self, note: impl Into<String>) -> Self {
        self.map(|mutex| mutex.note(note))
    }

    /// See [`Mutex::auto_renew`](crate::Mutex::auto_renew): yes by default.
    pub fn auto_renew(self, auto_renew: bool) -> Self {
        self.map(|mutex| mutex.auto_renew(auto_renew))
    }

    /// See [`Mutex::max_hold`](crate::Mutex::max_hold): at least 10 ms, no limit by default.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.map(|mutex| mutex.max_hold(max_hold))
    }

    /// See [`Mutex::linger`](crate::Mutex::linger): not at all by default.
    pub fn linger(self, linger: Duration) -> Self {
        self.map(|mutex| mutex.linger(linger))
    }

    /// See [`Mutex::at_least`](crate::Mutex::at_least): at most 24 h, not at all by default.
    pub fn at_least(self, at_least: Duration) -> Self {
        self.map(|mutex| mutex.at_least(at_least))
    }

    /// See [`Mutex::on_wait`](crate::Mutex::on_wait).
    pub fn on_wait(self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.map(|mutex| mutex.on_wait(watch))
    }

    /// See [`Mutex::acquire`](crate::Mutex::acquire).
    pub fn acquire(&self) -> Result<Lease, Error> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// See [`Mutex::acquire_within`](crate::Mutex::acquire_within).
    pub fn acquire_within(&self, limit: Duration) -> Result<Lease, Error> {
        block_on(self.0.acquire_within(limit)).map(Lease)
    }

    /// See [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Lease))
    }

    /// [`Mutex::acquire`], then [`Lease::run`].
    ///
    /// # Errors
    /// As these methods.
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<RunOutcome<T>, Error> {
        Ok(self.acquire()?.run(work)?)
    }

    /// [`Mutex::acquire_within`], then [`Lease::run`].
    ///
    /// # Errors
    /// As these methods.
    pub fn run_within<T>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<RunOutcome<T>, Error> {
        Ok(self.acquire_within(limit)?.run(work)?)
    }

    /// [`Mutex::try_acquire`], then [`Lease::run`]. `None` when the lock is busy; then `work` does not begin.
    ///
    /// # Errors
    /// As these methods.
    pub fn try_run<T>(
        &self,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<Option<RunOutcome<T>>, Error> {
        let lease = self.try_acquire()?;
        Ok(lease.map(|lease| lease.run(work)).transpose()?)
    }
}

/// A blocking [`Lease`](crate::Lease). It dereferences to that type for the methods that do not wait.
///
/// ```
/// use leasehold::blocking::Client;
///
/// let lease = Client::embedded()?.mutex("orders:42").acquire()?;
/// for step in 0..3 {
///     if lease.is_lost() {
///         break;
///     }
///     println!("step {step}, under fence {}", lease.fence());
/// }
/// lease.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a lease releases the lock"]
pub struct Lease(crate::Lease);

impl Lease {
    /// Waits until the lease is lost; see [`Lease::lost`](crate::Lease::lost).
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`Lease::watch`](crate::Lease::watch).
    pub fn watch(&self) -> LossWatch {
        LossWatch(self.0.watch())
    }

    /// See [`Lease::extend`](crate::Lease::extend).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`Lease::release`](crate::Lease::release).
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`Lease::release_after`](crate::Lease::release_after).
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }

    /// Runs `work` under the lease, then releases the lease. Blocking work is not cancelled: check
    /// [`Lease::is_lost`](crate::Lease::is_lost) between its steps, or use a [`LossWatch`] in another thread. The result has the output
    /// and the result of the release: see [`RunOutcome`].
    ///
    /// # Errors
    /// [`Lost`] when the lease was lost before `work` began.
    pub fn run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<RunOutcome<T>, Lost> {
        if let Some(lost) = self.loss() {
            return Err(lost);
        }
        let output = work(&self);
        let released = self.release();
        Ok(RunOutcome::new(output, released))
    }

    /// See [`Lease::detach`](crate::Lease::detach).
    pub fn detach(self, ttl: Duration) -> Result<(Detached, LeaseStatus), Error> {
        let (detached, status) = block_on(self.0.detach(ttl))?;
        Ok((Detached(detached), status))
    }
}

impl Deref for Lease {
    type Target = crate::Lease;

    fn deref(&self) -> &crate::Lease {
        &self.0
    }
}

/// A blocking [`LossWatch`](crate::LossWatch). It dereferences to that type for the methods that do not wait.
#[derive(Debug, Clone)]
#[must_use = "a watch does nothing until it is asked"]
pub struct LossWatch(crate::LossWatch);

impl LossWatch {
    /// Waits until the lease is lost; see [`LossWatch::lost`](crate::LossWatch::lost).
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// Waits until the lease has ended; see [`LossWatch::ended`](crate::LossWatch::ended).
    pub fn wait_ended(&self) -> LeaseEnd {
        block_on(self.0.ended())
    }
}

impl Deref for LossWatch {
    type Target = crate::LossWatch;

    fn deref(&self) -> &crate::LossWatch {
        &self.0
    }
}

/// A blocking [`Detached`](crate::Detached). It dereferences to that type for the methods that do not wait.
#[derive(Debug, Clone)]
pub struct Detached(pub(super) crate::Detached);

impl Detached {
    /// See [`Detached::renew`](crate::Detached::renew).
    pub fn renew(&self, ttl: Duration) -> Result<LeaseStatus, Error> {
        block_on(self.0.renew(ttl))
    }

    /// See [`Detached::check`](crate::Detached::check).
    pub fn check(&self) -> Result<LeaseStatus, Error> {
        block_on(self.0.check())
    }

    /// See [`Detached::release`](crate::Detached::release).
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }
}

impl Deref for Detached {
    type Target = crate::Detached;

    fn deref(&self) -> &crate::Detached {
        &self.0
    }
}

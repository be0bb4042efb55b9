//! The mutex without `async`.

use std::time::Duration;

use pollster::block_on;

use super::lease::Lease;
use crate::error::Error;
use crate::lease::{RunOutcome, WaitStatus};

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
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let mutex = client.mutex("orders:42").map(|mutex| mutex.ttl(Duration::from_secs(5)).note("nightly"));
    /// mutex.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn map(self, change: impl FnOnce(crate::Mutex) -> crate::Mutex) -> Self {
        Self(change(self.0))
    }

    /// See [`Mutex::ttl`](crate::Mutex::ttl): 10 ms to 24 h, default 30 s.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").ttl(Duration::from_secs(5)).acquire()?;
    /// assert!(lease.valid_for() <= Duration::from_secs(5));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|mutex| mutex.ttl(ttl))
    }

    /// See [`Mutex::note`](crate::Mutex::note): at most 128 bytes.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").note("nightly").acquire()?;
    /// assert!(format!("{:?}", client.inspect("orders:42")?).contains("nightly"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn note(self, note: impl Into<String>) -> Self {
        self.map(|mutex| mutex.note(note))
    }

    /// See [`Mutex::auto_renew`](crate::Mutex::auto_renew): yes by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").ttl(Duration::from_millis(50)).auto_renew(false).acquire()?;
    /// lease.wait_lost();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn auto_renew(self, auto_renew: bool) -> Self {
        self.map(|mutex| mutex.auto_renew(auto_renew))
    }

    /// See [`Mutex::max_hold`](crate::Mutex::max_hold): at least 10 ms, no limit by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").max_hold(Duration::from_millis(50)).acquire()?;
    /// lease.wait_lost();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.map(|mutex| mutex.max_hold(max_hold))
    }

    /// See [`Mutex::linger`](crate::Mutex::linger): not at all by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let orders = client.mutex("orders:42").linger(Duration::from_millis(50));
    /// orders.acquire()?.release()?;
    /// orders.acquire()?.release()?; // without a request, if it follows in time
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn linger(self, linger: Duration) -> Self {
        self.map(|mutex| mutex.linger(linger))
    }

    /// See [`Mutex::at_least`](crate::Mutex::at_least): at most 24 h, not at all by default.
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let report = client.mutex("report").at_least(Duration::from_secs(60));
    /// report.acquire()?.release()?;
    /// assert!(report.try_acquire()?.is_none(), "taken for a minute");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn at_least(self, at_least: Duration) -> Self {
        self.map(|mutex| mutex.at_least(at_least))
    }

    /// See [`Mutex::on_wait`](crate::Mutex::on_wait).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// let waiting = client.mutex("orders:42").on_wait(|status| println!("{status:?}"));
    /// assert!(waiting.acquire_within(Duration::from_millis(20)).is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn on_wait(self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.map(|mutex| mutex.on_wait(watch))
    }

    /// See [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// assert!(!lease.is_lost());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire(&self) -> Result<Lease, Error> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// See [`Mutex::acquire_within`](crate::Mutex::acquire_within).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// let late = client.mutex("orders:42").acquire_within(Duration::from_millis(20));
    /// assert!(matches!(late, Err(leasehold::Error::Timeout(_))));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire_within(&self, limit: Duration) -> Result<Lease, Error> {
        block_on(self.0.acquire_within(limit)).map(Lease)
    }

    /// See [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// assert!(client.mutex("orders:42").try_acquire()?.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Lease))
    }

    /// [`Mutex::acquire`], then [`Lease::run`].
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let ran = client.mutex("orders:42").run(|lease| lease.fence())?;
    /// println!("worked under fence {}", ran.confirmed()?);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As these methods.
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<RunOutcome<T>, Error> {
        Ok(self.acquire()?.run(work)?)
    }

    /// [`Mutex::acquire_within`], then [`Lease::run`].
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let ran = client.mutex("orders:42").run_within(Duration::from_secs(5), |_| 7)?;
    /// assert_eq!(ran.confirmed()?, 7);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let _held = client.mutex("orders:42").acquire()?;
    /// assert!(client.mutex("orders:42").try_run(|_| 7)?.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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

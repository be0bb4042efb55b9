//! A lease, its watch and its detached form without `async`.

use std::ops::Deref;
use std::time::Duration;

use pollster::block_on;

use crate::error::{Error, Lost};
use crate::lease::{LeaseEnd, LeaseStatus, RunOutcome};

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
pub struct Lease(pub(super) crate::Lease);

impl Lease {
    /// Waits until the lease is lost; see [`Lease::lost`](crate::Lease::lost).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").max_hold(std::time::Duration::from_millis(50)).acquire()?;
    /// let lost = lease.wait_lost();
    /// println!("{lost}");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`Lease::watch`](crate::Lease::watch).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let watch = lease.watch();
    /// let watcher = std::thread::spawn(move || watch.wait_ended());
    /// lease.release()?;
    /// println!("{:?}", watcher.join().expect("it does not panic"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn watch(&self) -> LossWatch {
        LossWatch(self.0.watch())
    }

    /// See [`Lease::extend`](crate::Lease::extend).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// lease.extend(Duration::from_secs(60))?;
    /// assert!(lease.valid_for() > Duration::from_secs(30));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`Lease::release`](crate::Lease::release).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// client.mutex("orders:42").acquire()?.release()?;
    /// assert!(client.inspect("orders:42")?.holder.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`Lease::release_after`](crate::Lease::release_after).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// client.mutex("report").acquire()?.release_after(Duration::from_secs(60))?;
    /// assert!(client.mutex("report").try_acquire()?.is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }

    /// Runs `work` under the lease, then releases the lease. Blocking work is not cancelled: check
    /// [`Lease::is_lost`](crate::Lease::is_lost) between its steps, or use a [`LossWatch`] in another thread. The result has the output
    /// and the result of the release: see [`RunOutcome`].
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// assert_eq!(lease.run(|_| 7)?.confirmed()?, 7);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// println!("pass this to another process: {}", detached.token());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").max_hold(Duration::from_millis(50)).acquire()?;
    /// let watch = lease.watch();
    /// println!("{}", watch.wait_lost());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// Waits until the lease has ended; see [`LossWatch::ended`](crate::LossWatch::ended).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let watch = lease.watch();
    /// lease.release()?;
    /// println!("{:?}", watch.wait_ended());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// detached.renew(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn renew(&self, ttl: Duration) -> Result<LeaseStatus, Error> {
        block_on(self.0.renew(ttl))
    }

    /// See [`Detached::check`](crate::Detached::check).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// detached.check()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn check(&self) -> Result<LeaseStatus, Error> {
        block_on(self.0.check())
    }

    /// See [`Detached::release`](crate::Detached::release).
    ///
    /// ```
    /// # let client = leasehold::blocking::Client::embedded()?;
    /// # use std::time::Duration;
    /// let lease = client.mutex("orders:42").acquire()?;
    /// let (detached, _) = lease.detach(Duration::from_secs(60))?;
    /// detached.release()?;
    /// assert!(client.mutex("orders:42").try_acquire()?.is_some());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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

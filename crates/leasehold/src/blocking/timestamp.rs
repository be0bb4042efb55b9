//! The timestamp lock without `async`.

use std::ops::Deref;
use std::time::Duration;

use pollster::block_on;

use crate::error::{Error, Lost};
use crate::lease::WaitStatus;
use crate::timestamp::Unit;

/// A blocking [`TimestampLock`](crate::TimestampLock).
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct TimestampLock(pub(super) crate::TimestampLock);

impl TimestampLock {
    /// Applies settings of the async lock: `lock.map(|lock| lock.ttl(ttl).unit(Unit::Millis))`.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let lock = client.timestamp_lock("nightly").map(|lock| lock.ttl(Duration::from_secs(60)));
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn map(self, change: impl FnOnce(crate::TimestampLock) -> crate::TimestampLock) -> Self {
        Self(change(self.0))
    }

    /// See [`TimestampLock::ttl`](crate::TimestampLock::ttl): 10 ms to 24 h, default 30 s.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let lock = client.timestamp_lock("nightly").ttl(Duration::from_secs(60));
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|lock| lock.ttl(ttl))
    }

    /// See [`TimestampLock::unit`](crate::TimestampLock::unit): seconds by default.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let lock = client.timestamp_lock("nightly").unit(leasehold::timestamp::Unit::Millis);
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn unit(self, unit: Unit) -> Self {
        self.map(|lock| lock.unit(unit))
    }

    /// See [`TimestampLock::auto_renew`](crate::TimestampLock::auto_renew): yes by default.
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let hold = client.timestamp_lock("nightly").auto_renew(false).acquire()?;
    /// hold.wait_lost();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn auto_renew(self, auto_renew: bool) -> Self {
        self.map(|lock| lock.auto_renew(auto_renew))
    }

    /// See [`TimestampLock::without_scripts`](crate::TimestampLock::without_scripts).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let lock = client.timestamp_lock("nightly").without_scripts();
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn without_scripts(self) -> Self {
        self.map(crate::TimestampLock::without_scripts)
    }

    /// See [`TimestampLock::on_wait`](crate::TimestampLock::on_wait).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let lock = client.timestamp_lock("nightly").on_wait(|status| println!("{status:?}"));
    /// lock.acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn on_wait(self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.map(|lock| lock.on_wait(watch))
    }

    /// See [`TimestampLock::acquire`](crate::TimestampLock::acquire).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// hold.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire(&self) -> Result<TimestampHold, Error> {
        block_on(self.0.acquire()).map(TimestampHold)
    }

    /// See [`TimestampLock::acquire_within`](crate::TimestampLock::acquire_within).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let hold = client.timestamp_lock("nightly").acquire_within(Duration::from_secs(5))?;
    /// hold.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn acquire_within(&self, limit: Duration) -> Result<TimestampHold, Error> {
        block_on(self.0.acquire_within(limit)).map(TimestampHold)
    }

    /// See [`TimestampLock::try_acquire`](crate::TimestampLock::try_acquire).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// if let Some(hold) = client.timestamp_lock("nightly").try_acquire()? {
    ///     hold.release()?;
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn try_acquire(&self) -> Result<Option<TimestampHold>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(TimestampHold))
    }
}

/// A blocking [`TimestampHold`](crate::TimestampHold). It dereferences to that type for the methods that do not wait.
#[derive(Debug)]
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold(crate::TimestampHold);

impl TimestampHold {
    /// Waits until the hold is lost; see [`TimestampHold::lost`](crate::TimestampHold::lost).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// println!("{}", hold.wait_lost());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn wait_lost(&self) -> Lost {
        block_on(self.0.lost())
    }

    /// See [`TimestampHold::extend`](crate::TimestampHold::extend).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// hold.extend(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.extend(ttl))
    }

    /// See [`TimestampHold::release`](crate::TimestampHold::release).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// client.timestamp_lock("nightly").acquire()?.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }

    /// See [`TimestampHold::release_after`](crate::TimestampHold::release_after).
    ///
    /// ```no_run
    /// # let client = leasehold::blocking::Client::connect("redis://127.0.0.1/")?;
    /// # use std::time::Duration;
    /// let hold = client.timestamp_lock("nightly").acquire()?;
    /// hold.release_after(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn release_after(self, keep: Duration) -> Result<(), Error> {
        block_on(self.0.release_after(keep))
    }
}

impl Deref for TimestampHold {
    type Target = crate::TimestampHold;

    fn deref(&self) -> &crate::TimestampHold {
        &self.0
    }
}

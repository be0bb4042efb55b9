//! Sharing a key with clients of the oldest recipe, whose lock is its own deadline: `SETNX key <unix time + timeout + 1>`, `GET`,
//! `GETSET`, `DEL`. Use it only for keys that such clients use too: a [`Mutex`](crate::Mutex) is better in every way. A hold of this lock
//! has no fence.
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold::Client;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let lock = client.timestamp_lock("orders:42").ttl(Duration::from_secs(30));
//! if let Some(hold) = lock.try_acquire().await? {
//!     tokio::select! {
//!         lost = hold.lost() => println!("{lost}"),
//!         () = async { /* the work */ } => hold.release().await?,
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # What it cannot promise
//!
//! Leasehold executes each step as one script, by the server's clock. It cannot change the foreign clients:
//!
//! - **Clocks.** A foreign client judges deadlines by its own clock. If that clock is ahead, the client takes the lock from a living
//!   holder. If it is behind, the client goes on after its deadline by the server's clock, and Leasehold takes the lock meanwhile.
//! - **A delayed `GETSET`** of a foreign client overwrites the deadline of a Leasehold hold. The foreign client may have lost that race,
//!   but Leasehold cannot tell, and reports the hold as lost. The key then stays taken until the overwritten deadline, without a holder.
//! - **No owner.** A time does not name its owner. A foreign `DEL` frees a Leasehold hold. If another client then takes the lock with an
//!   equal deadline (the same second, the same timeout), the two holders cannot be told apart: both go on, and the first release frees the
//!   lock for both. Leasehold clients never write two equal deadlines while the first one is held.
//! - **No queue, no wakes**: the first client that asks after a release gets the lock.
//!
//! Without scripts ([`TimestampLock::without_scripts`]) there are races between Leasehold clients too; see there.
//!
//! [How to get rid of it](TimestampLock#away-from-it). `docs/reference/timestamp.md` says more.

// # Invariants
//
// T1 to T5 are in `leasehold-core`: which values may be written, when, and over which values.
//
// - **T6** A hold may be relied on until `sent + ttl - drift`, with `sent` read before the request was sent: before its deadline
//   by the server's clock, however long the answer took. The keeper of leases says so (L1), and plans the renewals (RN2).
// - **T7** A request that may have been executed is not sent again, except an extension, which names all deadlines that may be its
//   holder's. So an acquisition or a release whose answer is lost is left to its deadline: an equal deadline may be another owner's by then.
// - **T8** A hold has one request under way at a time, so requests cannot overtake each other.
// - **T9** Lost is final (L3). A release, a drop or the end of the client ends the renewal of the hold first.
// - **T10** Only the server that answers now can confirm a hold. After a replacement the hold is in doubt, and the client asks the new
//   server at once. An answer to a request from before the replacement confirms nothing (L4).

mod keeper;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use leasehold_core::timestamp::Unit;
use leasehold_core::timestamp::{Reply, Step};
use leasehold_core::{HolderView, Invalid, LockName, Ttl, poll_after};
use tokio::sync::oneshot;

pub use self::keeper::TimestampHold;
use self::keeper::{Keeper, Key, after, is_transient};
use crate::backoff::{Backoff, jittered};
use crate::client::Client;
use crate::error::{Error, StoreError, Timeout};
use crate::lease::{EngineHandle, OnWait, WaitLimit, WaitStatus};

impl Client {
    /// The lock of this name, shared with clients of the recipe of [`timestamp`](crate::timestamp). Does no I/O. Only Redis and Valkey
    /// support it.
    pub fn timestamp_lock(&self, name: impl AsRef<str>) -> TimestampLock {
        TimestampLock::new(self, name)
    }
}

/// A lock whose value is its deadline, as foreign clients write it. Cheap to make and to clone. Weaker than a
/// [`Mutex`](crate::Mutex):
///
/// - A foreign client whose clock is ahead takes the lock from a living holder. One whose clock is behind goes on after its deadline.
/// - A late foreign `GETSET` overwrites the deadline of a living holder. The holder cannot tell whether that client won, and reports the
///   lock as lost.
/// - The lock has no owner: any `DEL` frees it, and two holders with one deadline cannot be told apart.
/// - The lock has no fence, so a resource cannot refuse a late holder.
///
/// [The module](crate::timestamp#what-it-cannot-promise) says more of each.
///
/// # Away from it
///
/// 1. Replace the foreign clients by this type, one by one: same key, same unit.
/// 2. When the last one is gone, let each program also take a [`Mutex`](crate::Mutex) *with another name*, inside of this lock: first
///    this lock, then the mutex. The changed and the unchanged programs exclude each other by this lock.
/// 3. When all programs take both, and not before, take the mutex alone, pass its [fence](crate::Lease::fence) to the resource, and
///    delete the old key.
///
/// The mutex needs another name: under its own key, a timestamp is a foreign lock without an expiry, and the mutex would wait for it
/// without end if the holder crashed.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct TimestampLock {
    engine: EngineHandle,
    name: Result<LockName, Invalid>,
    ttl: Duration,
    unit: Unit,
    auto_renew: bool,
    by_script: bool,
    on_wait: Option<OnWait>,
}

impl TimestampLock {
    /// The lock of this name. Does no I/O. A name that is not allowed is reported when the lock is acquired.
    pub fn new(client: &Client, name: impl AsRef<str>) -> Self {
        Self {
            engine: client.engine.clone(),
            name: client.name(name.as_ref()),
            ttl: Duration::from_secs(30),
            unit: Unit::Seconds,
            auto_renew: true,
            by_script: true,
            on_wait: None,
        }
    }

    /// How long a hold lasts without renewal. On the server it lasts up to two units longer, since clients round. 10 ms to 24 h;
    /// default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The time unit of the foreign clients' deadlines. Default: seconds.
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Whether a hold renews itself every third of its TTL. Default: yes. Without renewal, the client does not look at the key either,
    /// unless the server is replaced. So only [`TimestampHold::extend`] and [`TimestampHold::release`] notice that another client has
    /// deleted or overwritten the deadline.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// For servers that refuse scripts: sends the commands of the recipe one by one, by the server's clock. Then two Leasehold clients
    /// are as unsafe with each other as with foreign clients:
    ///
    /// - Two clients take over an expired lock at the same time. The `GETSET` of the slower one (here `SET XX GET`, which does not restore a
    ///   deleted key) overwrites the deadline of the faster one, whose hold is lost at its next renewal. A value that is not a time and was
    ///   written just then is overwritten too; that is reported as an error.
    /// - A renewal that is delayed until another client holds the lock overwrites that client's deadline, and so shortens or prolongs its
    ///   hold.
    /// - A `DEL` that is delayed beyond the end of the hold frees the lock of the next holder. It is sent only if at least a second is left.
    pub fn without_scripts(mut self) -> Self {
        self.by_script = false;
        self
    }

    /// Calls `watch` each time the lock is busy: some twenty times a second while it waits. `watch` must return at once, as for
    /// [`Mutex::on_wait`](crate::Mutex::on_wait). The number of waiters ahead is always zero, since there is no queue.
    pub fn on_wait(mut self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(watch));
        self
    }

    /// Waits for the lock. There is no queue: the client asks about every 50 ms, and when the deadline has passed.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let hold = client.timestamp_lock("orders:42").acquire().await?;
    /// hold.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not answer for longer than the
    /// [outage timeout](crate::ClientBuilder::outage_timeout), or when the key holds a value that is not a time in this unit.
    /// [`Error::Invalid`] for bad settings, and for stores other than Redis and Valkey. Never [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the waiting. If a request under way still gets the lock, the client releases it in the background.
    pub async fn acquire(&self) -> Result<TimestampHold, Error> {
        let hold = self.request(WaitLimit::Forever).await?;
        hold.ok_or_else(|| StoreError::closed().into())
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the lock was busy at the limit. [`Error::Store`] when the store did not answer at the end. Otherwise as
    /// [`TimestampLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`TimestampLock::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<TimestampHold, Error> {
        let hold = self.request(WaitLimit::Within(limit)).await?;
        hold.ok_or_else(|| StoreError::closed().into())
    }

    /// Asks once: `None` when the lock is busy.
    ///
    /// # Errors
    /// [`Error::Store`] when the store gave no verdict. If the request may have taken effect, the lock may stay taken without a holder until
    /// its deadline. Otherwise as [`TimestampLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`TimestampLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<TimestampHold>, Error> {
        self.request(WaitLimit::Once).await
    }

    /// Asks on the client's thread, so the caller may drop the future at any time: an undelivered hold is dropped, and dropping releases.
    async fn request(&self, limit: WaitLimit) -> Result<Option<TimestampHold>, Error> {
        let (reply, answer) = oneshot::channel();
        let asking = AcquireTask {
            key: Key {
                engine: Arc::clone(&self.engine),
                name: self.name.clone()?,
                unit: self.unit,
                by_script: self.by_script,
            },
            ttl: Ttl::new(self.ttl)?,
            auto_renew: self.auto_renew,
            limit,
            on_wait: self.on_wait.clone(),
            reply,
        };
        if self.engine.is_closed() {
            return Err(StoreError::closed().into());
        }
        self.engine.tasks.spawn(asking.run());
        let hold = answer.await.map_err(|_| StoreError::closed())??;
        Ok(hold.map(|hold| TimestampHold {
            _engine: Some(self.engine.clone()),
            ..hold
        }))
    }
}

impl fmt::Debug for TimestampLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimestampLock")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}

type AcquireResult = Result<Option<TimestampHold>, Error>;

struct AcquireTask {
    key: Key,
    ttl: Ttl,
    auto_renew: bool,
    limit: WaitLimit,
    on_wait: Option<OnWait>,
    reply: oneshot::Sender<AcquireResult>,
}

impl AcquireTask {
    async fn run(mut self) {
        let answer = self.ask().await;
        // Fails if the caller has gone.
        drop(self.reply.send(answer));
    }

    async fn ask(&mut self) -> AcquireResult {
        let engine = self.key.engine.clone();
        let clock = &engine.clock;
        let begun = clock.now();
        let (mut heard, mut holder, mut failure) = (begun, None, None);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        loop {
            let sent = clock.now();
            let asking = self.key.asking(Step::Acquire { ttl: self.ttl }, false);
            let pause = match asking.await {
                Ok(Reply::Held { deadline, at_us }) => {
                    let (key, granted) = (self.key.clone(), (deadline, at_us));
                    let hold = Keeper::begin(key, granted, sent, self.ttl, self.auto_renew);
                    return Ok(Some(hold));
                }
                Ok(Reply::Busy { .. }) if matches!(self.limit, WaitLimit::Once) => {
                    return Ok(None);
                }
                Ok(Reply::Busy { deadline, at_us }) => {
                    let seen = self.key.holder(deadline, at_us);
                    let left = seen.expires_in;
                    self.tell(&seen, clock.now().since(begun));
                    (heard, holder, failure) = (clock.now(), Some(seen), None);
                    backoff.reset();
                    jittered(poll_after(0, left, true, false))
                }
                Ok(other) => return Err(self.key.refused(&other)),
                // A request that may have been executed keeps this client out until its deadline. It does no other harm (T7).
                Err(error)
                    if is_transient(&error)
                        && !matches!(self.limit, WaitLimit::Once)
                        && clock.now().since(heard) < engine.outage_timeout =>
                {
                    failure = Some(after(failure, error));
                    backoff.pause()
                }
                Err(error) => return Err(after(failure, error)),
            };
            let waited = clock.now().since(begun);
            let pause = match self.limit {
                WaitLimit::Within(limit) if waited >= limit => {
                    // Only an answer of the store says that the lock is busy.
                    return Err(failure.unwrap_or_else(|| self.timeout(waited, holder)));
                }
                WaitLimit::Within(limit) => pause.min(limit.saturating_sub(waited)),
                WaitLimit::Once | WaitLimit::Forever => pause,
            };
            tokio::select! {
                biased;
                () = self.reply.closed() => return Ok(None),
                closed = engine.closing() => return Err(closed.into()),
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Calls `on_wait`. If it panics, it is not called again.
    fn tell(&mut self, holder: &HolderView, waited: Duration) {
        let Some(on_wait) = &self.on_wait else { return };
        let waiting = WaitStatus {
            name: self.key.name.as_str().to_owned(),
            holder: holder.clone(),
            ahead: 0,
            waited,
        };
        if catch_unwind(AssertUnwindSafe(|| on_wait(&waiting))).is_err() {
            self.on_wait = None;
        }
    }

    fn timeout(&self, waited: Duration, holder: Option<HolderView>) -> Error {
        let timeout = Timeout {
            name: self.key.name.as_str().to_owned(),
            waited,
            holder: holder.map(Box::new),
            by_this_client: false,
            ahead: 0,
        };
        timeout.into()
    }
}

//! Sharing a key with clients of the oldest recipe, whose lock is its own deadline: `SETNX key <unix time + timeout + 1>`, `GET`,
//! `GETSET`, `DEL`. Must never hand out a [`Lease`](crate::Lease) or a fence, nor be used where nobody else needs the recipe:
//! a [`Mutex`](crate::Mutex) is better in every way.
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
//! Ours takes each step as one script, by the server's clock. What the others do is beyond it:
//!
//! - **Clocks.** A foreign client judges deadlines by its own clock. One that is ahead takes over from a living holder. One that
//!   is behind goes on although its deadline has passed by the server's clock, and ours takes over.
//! - **A delayed `GETSET`** of a foreign client overwrites a deadline of ours that lies ahead. It may have been meant for one
//!   that had passed, and lose; ours cannot tell, and counts the lock as lost. The key then stays taken until the deadline
//!   that was written there, by nobody.
//! - **No owner.** A time does not say whose it is. A foreign `DEL` frees our lock. If then somebody takes it with the very
//!   same deadline (the same second, the same timeout), nobody can tell the two holders apart: both go on, and whoever
//!   releases first frees it for both. Ours never write two equal deadlines while the first one is held; and what may have
//!   been carried out already is not sent again (T7), since an equal deadline may be another's by then.
//! - **No line, no wakes**: whoever asks first after a release gets it.
//!
//! Without scripts ([`TimestampLock::without_scripts`]) there are races between ours as well, named there.
//!
//! [How to get rid of it](TimestampLock#away-from-it); `docs/reference/timestamp.md` says more.
//!
//! # Invariants
//!
//! T1 to T5 are in `leasehold-core`: what may be written, when, and over what.
//!
//! - **T6** A hold may be relied on until `sent + ttl - drift`, with `sent` read before the request was sent: before its deadline
//!   by the server's clock, however long the answer took.
//! - **T7** Nothing that may have been carried out is sent again, but an extension, which names all deadlines that may be its
//!   holder's. So an acquisition or a release whose answer is lost is left to its deadline.
//! - **T8** A hold has one request under way at a time, so that none of them overtakes another.
//! - **T9** Lost is final, and whatever ends a hold (release, drop, the end of the client) ends its renewal first.
//! - **T10** A hold is certain only by word of the server that answers now. Where that was replaced, the hold is in doubt, and asked
//!   for at once, until the new one has confirmed it; an answer to what was asked before confirms nothing.

mod acquire;
mod ending;
mod hold;
mod keeper;
mod keeping;
mod key;
mod state;
#[cfg(test)]
mod virtual_time;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use leasehold_core::timestamp::Unit;
use leasehold_core::{Invalid, LockName, Ttl};

pub use self::hold::TimestampHold;
use self::key::Key;
use crate::client::Client;
use crate::error::{Error, StoreError};
use crate::lease::{Engine, OnWait, WaitLimit, WaitStatus};
use crate::store::timestamps::Timestamps;

impl Client {
    /// The lock of this name, shared with clients of the recipe of [`timestamp`](crate::timestamp). Does no I/O. Only a store in
    /// Redis has it.
    pub fn timestamp_lock(&self, name: impl AsRef<str>) -> TimestampLock {
        TimestampLock::new(self, name)
    }
}

/// A lock whose value is its deadline, as foreign clients write it. Cheap to make and to clone. Weaker than a
/// [`Mutex`](crate::Mutex):
///
/// - a foreign client whose clock is ahead takes it from a living holder, and one whose clock is behind goes on after its time;
/// - a foreign `GETSET` that comes late overwrites the deadline of a living holder, who cannot tell a loser's from a winner's and
///   counts the lock as lost;
/// - it has no owner: whoever sends `DEL` frees it, and of two holders with the same deadline nobody can tell one from the other;
/// - it has no fence, so no resource can refuse a holder that is late.
///
/// [The module](crate::timestamp#what-it-cannot-promise) says more of each.
///
/// # Away from it
///
/// 1. Replace the foreign clients by this type, one by one: same key, same unit.
/// 2. When the last one is gone, let each program take a [`Mutex`](crate::Mutex) *with another name* as well, inside of this lock:
///    first this, then the mutex. The changed programs and the others exclude each other by this lock.
/// 3. When every program has both, and not before, take the mutex alone, pass its [fence](crate::Lease::fence) to the resource, and
///    delete the old key.
///
/// Another name, because a mutex waits for a time under its own key as for any foreign lock without an end: for ever, if its
/// holder crashed.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct TimestampLock {
    engine: Arc<Engine>,
    keys: Option<Arc<dyn Timestamps>>,
    name: Result<LockName, Invalid>,
    ttl: Duration,
    unit: Unit,
    auto_renew: bool,
    by_script: bool,
    on_wait: Option<OnWait>,
}

impl TimestampLock {
    /// The lock of this name. Does no I/O; a name that cannot be used is reported when it is acquired.
    pub fn new(client: &Client, name: impl AsRef<str>) -> Self {
        Self {
            engine: client.engine.clone(),
            keys: client.timestamps.clone(),
            name: client.name(name.as_ref()),
            ttl: Duration::from_secs(30),
            unit: Unit::Seconds,
            auto_renew: true,
            by_script: true,
            on_wait: None,
        }
    }

    /// How long a hold lasts without renewal. On the server it lasts up to two units longer, for those who round. 10 ms to
    /// 24 h; default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// What the others count their deadlines in. Default: seconds.
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Whether a hold renews itself every third of its TTL. Default: yes. Without, nothing looks at the key either, unless another
    /// server answers than before: that somebody else has deleted or overwritten the deadline shows at [`TimestampHold::extend`]
    /// or [`TimestampHold::release`] only.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// For servers that refuse scripts: does as the recipe does, one command after the other, by the server's clock. Then two
    /// of ours are no safer from each other than from foreign clients:
    ///
    /// - the `GETSET` (here `SET XX GET`, which does not bring back what was deleted) of the slower of two that take over overwrites the
    ///   deadline of the faster, who counts its lock as lost at its next renewal; so it does with what is no time, if that was
    ///   written just then, which is an error that says so;
    /// - a renewal that is delayed until the lock has passed to another overwrites that one's deadline, and so shortens or
    ///   prolongs its lock;
    /// - `DEL` that is delayed for longer than the rest of the hold (a second at least, or nothing is deleted) frees the lock of
    ///   the next holder.
    pub fn without_scripts(mut self) -> Self {
        self.by_script = false;
        self
    }

    /// Calls `watch` each time the lock was found busy: some twenty times a second while it waits. It must return at once, as for
    /// [`Mutex::on_wait`](crate::Mutex::on_wait). Nobody is ever ahead, since there is no line.
    pub fn on_wait(mut self, watch: impl Fn(&WaitStatus) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(watch));
        self
    }

    /// Waits for the lock. There is no line: it asks every 50 ms or so, and when the deadline has passed. Dropping the future
    /// ends the waiting.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not answer for longer than the [outage timeout](crate::ClientBuilder::outage_timeout), or the key holds no time in
    /// this unit; [`Error::Invalid`] for bad settings, and for stores other than Redis. Never [`Error::Timeout`].
    pub async fn acquire(&self) -> Result<TimestampHold, Error> {
        let hold = self.request(WaitLimit::Forever).await?;
        hold.ok_or_else(|| StoreError::closed().into())
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`] when it was busy at the end; [`Error::Store`] when the store had not answered since it last said so, or
    /// never; otherwise as [`TimestampLock::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<TimestampHold, Error> {
        let hold = self.request(WaitLimit::Within(limit)).await?;
        hold.ok_or_else(|| StoreError::closed().into())
    }

    /// Asks once: `None` when the lock is busy.
    ///
    /// # Errors
    /// [`Error::Store`] when the store gave no verdict: if the request may have taken effect, the lock may be taken by nobody
    /// until its deadline. Otherwise as [`TimestampLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<TimestampHold>, Error> {
        self.request(WaitLimit::Once).await
    }

    async fn request(&self, limit: WaitLimit) -> Result<Option<TimestampHold>, Error> {
        let key = Key {
            engine: self.engine.clone(),
            keys: self.keys.clone(),
            name: self.name.clone()?,
            unit: self.unit,
            by_script: self.by_script,
        };
        let ttl = Ttl::new(self.ttl)?;
        let on_wait = self.on_wait.clone();
        acquire::request(key, ttl, self.auto_renew, limit, on_wait).await
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

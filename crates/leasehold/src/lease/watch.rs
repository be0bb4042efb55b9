//! A watch on a lease for other tasks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Fence;

use super::handle::Lease;
use super::hold::{Hold, LeaseEnd};
use crate::clock::Moment;
use crate::error::Lost;

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

impl Lease {
    /// A watch on this lease for other tasks, threads and structs: see [`LossWatch`]. It does not keep the lease.
    pub fn watch(&self) -> LossWatch {
        LossWatch {
            hold: self.hold.clone(),
        }
    }
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

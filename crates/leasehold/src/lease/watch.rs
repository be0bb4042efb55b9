//! Watching a lease from elsewhere, without holding it.

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
/// It does not keep the lease: the lock is released when the [`Lease`] is, however many watches there are. It belongs to that one
/// lease, also when the lock goes on to the next task of the same client.
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
    /// A watch on this lease for other tasks, threads and structs. It tells them when the lease is lost, and does not keep it.
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

    /// Until when the lease may be relied on, unless it is renewed before; `None` once it has ended.
    pub fn valid_until(&self) -> Option<Moment> {
        // First: afterwards the deadline is that of whoever has the lock next.
        let until = self.hold.valid_until();
        self.hold.end().is_none().then_some(until)
    }

    /// How long from now that is, by a clock that counts suspend; zero once the lease has ended.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// Whether the lease was lost. Once it was given back, it is not lost any more.
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

    /// Waits until the lease is lost. If it is given back, this waits for ever: put it in a `select!` beside the work, and use
    /// [`LossWatch::ended`] in a task of its own.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        self.hold.wait_lost().await
    }

    /// Waits until the lease is lost or given back.
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

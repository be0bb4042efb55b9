//! Work that runs under a lease, and its outcome.

use super::handle::Lease;
use crate::error::{Error, Lost};

/// The value that work under a lease returned, and the result of the release after it.
///
/// They are separate, so a failed release does not cost the value: see [`Lease::run`].
#[derive(Debug, Clone)]
#[must_use = "`released` says whether the lease lasted to the end of the work; `confirmed` makes that an error"]
#[non_exhaustive]
pub struct RunOutcome<T> {
    /// The value that the work returned.
    pub output: T,
    /// The result of the release.
    ///
    /// - `Ok`: the lease was held until the release.
    /// - [`Error::Lost`]: the work ended, but the lease had been lost before. Some of it may have been unprotected.
    /// - [`Error::Store`]: the store did not confirm. The release goes on in the background, and the TTL ends the lease at the
    ///   latest.
    pub released: Result<(), Error>,
}

impl<T> RunOutcome<T> {
    pub(crate) fn new(output: T, released: Result<(), Error>) -> Self {
        Self { output, released }
    }

    /// The output, if the release was confirmed. Otherwise the output is dropped.
    ///
    /// # Errors
    /// The error in [`RunOutcome::released`].
    pub fn confirmed(self) -> Result<T, Error> {
        self.released.map(|()| self.output)
    }
}

impl<T, E> RunOutcome<Result<T, E>> {
    /// For work that can fail: takes the work's error out, so one `?` is enough.
    ///
    /// # Errors
    /// The error of the work. The result in [`RunOutcome::released`] is dropped then.
    pub fn transpose(self) -> Result<RunOutcome<T>, E> {
        let released = self.released;
        self.output.map(|output| RunOutcome { output, released })
    }
}

impl Lease {
    /// Runs `work` under the lease, then releases the lease. If the lease is lost first, `work` is cancelled at its next `.await`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("invoices").acquire().await?;
    /// let ran = lease.run(async |lease| format!("invoice 42 under fence {}", lease.fence())).await?;
    /// println!("{}", ran.output);                          // also if the release failed
    /// if let Err(error) = ran.released {
    ///     eprintln!("the lock may still be taken: {error}");
    /// }
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// If the work can fail, its output is a `Result`, and [`RunOutcome::transpose`] takes the error out. Name the error type at an `Ok`, as
    /// here. Without that, the compiler refuses `?` in the closure with E0277, "cannot use the `?` operator in an async closure".
    ///
    /// ```
    /// # async fn count(fence: leasehold::Fence) -> Result<u32, std::io::Error> { Ok(7) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::embedded()?;
    /// let lease = client.mutex("stock").acquire().await?;
    /// let ran = lease
    ///     .run(async |lease| {
    ///         let left = count(lease.fence()).await?;
    ///         Ok::<_, std::io::Error>(left + 1)
    ///     })
    ///     .await?                                          // the lease was lost, and the work cancelled
    ///     .transpose()?;                                   // the work failed
    /// assert_eq!(ran.confirmed()?, 8);                     // the release failed
    /// # client.close().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`] when the lease was lost while the work ran: the work was cancelled, so there is no output. Every other failure is
    /// in [`RunOutcome::released`], beside the output.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` at its current `.await` and releases the lease in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<RunOutcome<T>, Lost> {
        let output = tokio::select! {
            // Loss first: work that goes on beside it may be unprotected.
            biased;
            lost = self.lost() => return Err(lost),
            output = work(&self) => output,
        };
        let released = self.release().await;
        Ok(RunOutcome::new(output, released))
    }
}

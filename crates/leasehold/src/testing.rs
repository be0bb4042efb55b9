//! Tools for the tests of your program: a store with faults, and errors as values.
//!
//! [`Memory`](crate::Memory) is the store, and [`Memory::faults`](crate::Memory::faults) makes it fail, hang, be slow or lose replies.
//! [`Memory::clear`](crate::Memory::clear) makes it lose its data. With [`Clock::virtual_time`](crate::Clock::virtual_time) a test
//! does not wait in real time.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::{Client, Clock, Error, LossCause, Memory};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Error> {
//! // In a test: #[tokio::test(start_paused = true)]
//! let clock = Clock::virtual_time();
//! let memory = Memory::new(clock.clone());
//! let client = Client::builder().clock(clock).embedded(&memory)?;
//! let lease = client.mutex("orders").ttl(Duration::from_secs(30)).acquire().await?;
//!
//! memory.faults().hang();                              // the server does not answer: renewals fail
//! let lost = lease.lost().await;                       // 302 ms before the TTL ends
//! assert!(matches!(lost.cause, LossCause::Deadline(Some(_))));
//!
//! memory.faults().heal();
//! drop(lease);
//! assert!(client.mutex("orders").acquire_within(Duration::from_secs(1)).await.is_ok());
//! # Ok(()) }
//! ```
//!
//! One client can be cut off while another is not:
//!
//! ```
//! # use leasehold::{Client, Clock, Error, Memory, StoreErrorKind};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Error> {
//! let clock = Clock::virtual_time();
//! let memory = Memory::new(clock.clone());
//! let (near, far) = (memory.by_another_way(), memory.by_another_way());
//! let [here, there] = [&near, &far].map(|way| Client::builder().clock(clock.clone()).embedded(way));
//! far.faults().fail(StoreErrorKind::Unreachable);
//! assert!(here?.mutex("orders").try_acquire().await?.is_some());
//! assert!(matches!(there?.mutex("orders").try_acquire().await, Err(Error::Store(_))));
//! # Ok(()) }
//! ```
//!
//! Errors are values, so the code that handles them can be tested without a store:
//!
//! ```
//! use leasehold::{Error, StoreErrorKind, testing};
//!
//! /// Whether to try again.
//! fn again(error: &Error) -> bool {
//!     match error {
//!         Error::Timeout(_) => true,
//!         Error::Store(error) => error.kind.is_transient(),
//!         _ => false,
//!     }
//! }
//! assert!(again(&testing::store_error(StoreErrorKind::Unreachable).into()));
//! assert!(!again(&testing::store_error(StoreErrorKind::Denied).into()));
//! ```

use std::time::Duration;

use leasehold_core::Fence;

use crate::client::Client;
use crate::error::{LossCause, Lost, StoreError, StoreErrorKind, Timeout};
pub use crate::store::memory::Faults;

/// The error of a lock that stayed busy for `waited`. It names no holder and no waiters; set its fields for more.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Error, testing};
///
/// let error = Error::from(testing::timeout("orders", Duration::from_secs(5)));
/// assert!(error.is_timeout());
/// ```
pub fn timeout(name: impl Into<String>, waited: Duration) -> Timeout {
    Timeout {
        name: name.into(),
        waited,
        holder: None,
        by_this_client: false,
        ahead: 0,
    }
}

/// The error of a lease that was lost for `cause`. Its fields can be set.
///
/// ```
/// use leasehold::{Error, Fence, LossCause, testing};
///
/// let error = Error::from(testing::lost("orders", Some(Fence::new(42)), LossCause::MaxHold));
/// assert!(error.is_lost());
/// ```
pub fn lost(name: impl Into<String>, fence: Option<Fence>, cause: LossCause) -> Lost {
    Lost {
        name: name.into(),
        fence,
        cause,
        replaced: None,
    }
}

/// The error of a store named `test` that gave no verdict. Its fields can be set; `may_have_taken_effect` is false.
pub fn store_error(kind: StoreErrorKind) -> StoreError {
    StoreError::new("test", kind, "made by a test")
}

/// Waits until no request of this client is under way, and each lock that no caller uses any more is released. A test that drops a lease, or
/// a future that asked for one, and then looks at the store would else race with the client.
///
/// It does not wait for leases that are held. A store that does not answer is awaited, and a release is repeated until the store confirms it
/// or the lock's time is over.
///
/// ```
/// use leasehold::{Client, Clock, Memory, testing};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// let memory = Memory::new(Clock::system());
/// let [here, there] = [Client::builder().embedded(&memory)?, Client::builder().embedded(&memory)?];
/// drop(here.mutex("orders").acquire().await?);         // the client releases it in the background
/// testing::settled(&here).await;
/// assert!(there.mutex("orders").try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
pub async fn settled(client: &Client) {
    client.engine.tasks.finished().await;
}

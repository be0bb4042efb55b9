//! **A distributed lock that is a lease with a number**: it is held for a time, renewed while you work, and you learn when it is lost.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::Client;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! let client = Client::embedded()?;                    // or Client::connect("redis://127.0.0.1/").await?
//! let orders = client.mutex("orders:42").ttl(Duration::from_secs(30));
//!
//! let lease = orders.acquire().await?;                 // waits its turn; drop the future to stop waiting
//! println!("fence {}", lease.fence());                 // send it with each access to the resource, reads included
//! assert!(orders.try_acquire().await?.is_none());      // busy is an answer, not an error
//! lease.release().await?;                              // Err(Lost): work may have been unprotected
//! # Ok(()) }
//! ```
//!
//! A [`Client`] connects to a store and makes [`Mutex`]es, which cost nothing until acquired. A [`Lease`] is a held mutex. [`Gate`]
//! checks fences at the protected resource. `blocking` (a feature) is the same API without `async`.
//!
//! # What it does not do
//!
//! No lock service can guarantee that two holders never overlap in an asynchronous network: a holder can be paused for
//! longer than its lease and not notice. A [`Lease`] knows its deadline, and a resource can refuse a late holder by its
//! [fence](Gate). `docs/guarantees.md` says what each store promises and what it does not.
//!
//! # Map
//!
//! [`Client`] → [`Mutex`] → [`Lease`] → the stores. [`error`] has the four kinds of error. [`Clock`] is time as a value, for tests on
//! virtual time, and [`testing`] makes a store fail. `timestamp` (a feature) is for keys shared with programs of the oldest recipe.
//! The crate `leasehold-cache` guards cached values: one caller in the fleet loads, the others take the stale value or wait. The rules
//! themselves are in `leasehold-core`.

#![forbid(unsafe_code)]
// Docs.rs says which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "redis")]
mod access;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod clock;
#[cfg(feature = "doctor")]
pub mod doctor;
mod election;
#[cfg(feature = "entries")]
#[doc(hidden)]
pub mod entries;
pub mod error;
mod fold;
mod foreign;
pub mod gate;
pub mod kind;
mod lease;
#[cfg(feature = "macros")]
mod locked;
mod mutex;
mod once;
mod runtime;
mod several;
mod store;
mod sync;
mod telemetry;
pub mod testing;
#[cfg(feature = "timestamp")]
pub mod timestamp;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "redis")]
pub use access::Credentials;
pub use client::{Client, ClientBuilder};
pub use clock::{Clock, Moment};
pub use election::{Election, LeaderWatch};
pub use error::{Error, LossCause, Lost, Replaced, StoreError, StoreErrorKind, Timeout};
pub use foreign::ForeignFormat;
pub use gate::{Gate, StaleFence};
pub use lease::{Detached, Lease, LeaseEnd, LeaseStatus, LossWatch, Slot, WaitStatus};
pub use leasehold_core::{
    ClientId, Fence, HolderIdentity, HolderView, Invalid, Mode, Owner, Slots, Snapshot, Ttl,
    WaiterView,
};
#[cfg(feature = "macros")]
pub use locked::{__locked, locked, set_default};
pub use mutex::{Lock, Mutex, ReadLock, RwLock, Semaphore};

/// The lease of a reader: see [`RwLock`].
pub type ReadLease = Lease<kind::Shared>;
/// The lease of a slot: see [`Semaphore`].
pub type Permit = Lease<kind::Slots>;
pub use once::{Once, PastRun, Turn};
#[doc(hidden)]
pub use runtime::{Blocked, block_on};
/// The version of rustls whose [`ClientConfig`](rustls::ClientConfig) [`ClientBuilder::tls`] takes.
#[cfg(feature = "tls")]
pub use rustls;
pub use several::{All, AnyLock, Leases};
#[cfg(feature = "redis")]
pub use store::QuorumInit;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub use store::StoreUrl;
#[cfg(feature = "local")]
#[doc(hidden)]
pub use store::local::make_private;
pub use store::memory::Memory;
pub use store::{InspectedNodes, NodeView};
#[cfg(feature = "timestamp")]
pub use timestamp::{TimestampHold, TimestampLock};
#[cfg(feature = "tls")]
pub use tls::Tls;
/// The token of [`LossWatch::cancellation_token`].
#[cfg(feature = "cancellation")]
pub use tokio_util::sync::CancellationToken;

/// The README's examples are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The page at the registry has a program, which is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RegistryPage;

/// The examples of the tutorial are run as tests.
#[cfg(all(doctest, feature = "local"))]
#[doc = include_str!("../../../docs/tutorial.md")]
struct Tutorial;

/// The examples of the guide to the library are compiled as tests.
#[cfg(all(doctest, feature = "blocking", feature = "macros"))]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryGuide;

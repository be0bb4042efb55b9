//! **A cache guard**: a hot entry expires, a thousand requests arrive, and exactly one of them loads the entry. The others take the stale
//! value or wait. This works across processes and hosts.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::Client;
//! use leasehold_cache::Cache;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::embedded()?;                    // or Client::connect("redis://127.0.0.1/").await?
//! let cache = Cache::new(&client);
//!
//! let page = cache
//!     .get_or_refresh("home", || async { Ok::<_, std::io::Error>(String::from("<h1>hello</h1>")) })
//!     .fresh_for(Duration::from_secs(60))
//!     .stale_for(Duration::from_secs(600))
//!     .await?;
//! println!("{} bytes, {:?}, {:?} old", page.len(), page.origin(), page.age());
//! cache.invalidate("home").await?;                     // readers get the stale value, and one refreshes it
//! # client.close().await; Ok(()) }
//! ```
//!
//! | the entry is | a caller gets |
//! |---|---|
//! | fresh | the value, by one `GET`; shortly before it expires, one caller in the fleet refreshes it in the background |
//! | stale (past its soft expiry, or invalidated) | the stale value at once; one caller in the fleet refreshes it in the background |
//! | missing | the value, loaded by one caller in the fleet; the others wait and are woken when it is stored |
//! | failing to load | the stale value if there is one, else the loader's error, shared; no caller in the fleet retries during the back-off |
//!
//! **Make one [`Cache`] for a client and clone it.** All clones share their loads. Two caches of one client are like two processes: the fleet
//! still loads an entry once, but each of them asks the store.
//!
//! # What is promised, and what is not
//!
//! - **After [`Cache::invalidate`] has returned, no process returns a value that was loaded before as fresh.** The store decides this when
//!   a value is stored. It is a safety property on one primary: an asynchronous failover of Redis may lose an invalidation, like any write.
//! - **One load at a time is only efficiency.** A process that is paused for longer than its lease may load beside its successor. Its
//!   value is stored if no newer one exists, and never replaces a newer one.
//! - A loader runs in a new task on the caller's runtime. A caller that times out, is dropped or panics does not end the load.
//! - The entries share the key space with all other keys of the store. A key that holds anything but a cache entry is left alone. Other
//!   languages can read entries: see `docs/reference/cache-protocol.md`.
//!
//! `blocking` (a feature) is the same API without `async`; `metrics` (a feature) counts reads and loads.

#![forbid(unsafe_code)]
// Docs.rs says which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
mod cache;
mod guard;
mod load;
mod local_cache;
mod policy;
mod telemetry;
#[cfg(test)]
mod tests;
mod value;

pub use leasehold_core::cache::Format;

pub use self::cache::{BatchResult, Cache, GetManyOrRefresh, GetOrRefresh, Lifetime};
pub use self::policy::{MOST_BYTES, Policy};
pub use self::value::{
    AnyFormat, Cached, Codec, Encoding, Error, Json, LoadFailed, MessagePack, Origin, Raw,
};

/// The page at the registry has a program, which is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RegistryPage;

/// The examples of the guide are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/cache.md")]
struct Guide;

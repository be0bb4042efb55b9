//! Private redis-servers as child processes: for `leasehold dev`, the lab and tests. The kit knows nothing of locks and leases.
//!
//! The feature `testing` adds real faults: a server that is paused, killed and restarted, a virtual clock for it, and a TCP
//! proxy that loses, holds, delays and cuts. The command is built without it. Everything in it blocks and needs no runtime, so
//! it serves sync and async tests alike. A failure panics with the expected outcome and the server's message, but for what
//! begins with `try_`.
//!
//! A server of a test or of the lab ends with their process, however that ends, and also while the server is paused.

#![allow(
    clippy::disallowed_methods,
    reason = "it drives real processes and sockets, which needs real time and real threads"
)]
#![allow(
    clippy::missing_panics_doc,
    reason = "`testing` panics when the test's surroundings are not as they should be"
)]

mod directory;
mod process;
#[cfg(feature = "testing")]
mod testing;

pub use directory::Directory;
pub use process::{Process, find_program, watched};
#[cfg(feature = "testing")]
pub use testing::*;

/// The page at the registry has a program, which is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RegistryPage;

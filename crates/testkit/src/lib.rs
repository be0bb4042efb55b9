//! Real servers and real faults for tests: redis-server as a child process, a virtual clock for
//! that server, and a TCP proxy that loses, holds, delays and cuts.
//!
//! The kit knows nothing of locks and leases, and is never part of a shipped binary. Everything
//! blocks and uses only `std`, so it serves sync and async tests alike. A failure panics with the
//! expected outcome and the server's message.
//!
//! A server ends with the process that started it, however that ends, and also while it is paused.

#![allow(
    clippy::disallowed_methods,
    reason = "test support drives real processes and sockets: it needs real time and real threads"
)]
#![allow(
    clippy::missing_panics_doc,
    reason = "everything here panics when the test's surroundings are not as they should be"
)]

mod directory;
mod process;
mod testing;

pub use directory::Directory;
pub use process::{Process, find_program, watched};
pub use testing::*;

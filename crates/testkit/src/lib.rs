//! Real servers and real faults for tests: redis-server as a child process, a clock of its own
//! for that server, and a TCP proxy that loses, holds, delays and cuts.
//!
//! It must never know what is being tested (no locks, no leases), and never be part of a
//! shipped binary. Everything blocks and uses only `std`, so it serves sync and async tests
//! alike. A failure panics with a message that says what was expected and what the server said:
//! in a test there is nobody to return an error to.
//!
//! A test process that is killed outright runs no destructors and may leave a server behind.

#![allow(
    clippy::disallowed_methods,
    reason = "test support drives real processes and sockets: it needs real time and real threads"
)]
#![allow(
    clippy::missing_panics_doc,
    reason = "everything here panics when the test's surroundings are not as they should be"
)]

mod builder;
#[cfg(target_os = "linux")]
mod clock;
mod launch;
mod net;
mod process;
mod proxy;
mod resp;
mod server;
mod tls;
mod wait;

pub use builder::RedisServerBuilder;
#[cfg(target_os = "linux")]
pub use clock::ServerClock;
pub use net::free_port;
pub use proxy::FaultProxy;
pub use resp::{Reply, RespConn};
pub use server::RedisServer;
pub use wait::{block_on, eventually};

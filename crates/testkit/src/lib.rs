//! Real servers and real faults for tests: redis-server as a child process, a virtual clock for
//! that server, and a TCP proxy that loses, holds, delays and cuts.
//!
//! The kit knows nothing of locks and leases, and is never part of a shipped binary. Everything
//! blocks and uses only `std`, so it serves sync and async tests alike. A failure panics with the
//! expected outcome and the server's message.
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
mod deny;
pub mod examples;
mod hold;
mod launch;
mod net;
mod process;
mod proxy;
mod pump;
mod resp;
mod server;
mod shared;
mod tls;
mod wait;

pub use builder::RedisServerBuilder;
#[cfg(target_os = "linux")]
pub use clock::{ServerClock, TestTime};
pub use net::{ReservedPort, free_port};
pub use proxy::FaultProxy;
pub use resp::{Reply, RespConn};
pub use server::RedisServer;
pub use wait::{block_on, eventually};

//! Servers with faults, clocks and certificates that a test chooses, and a TCP proxy that loses, holds, delays and cuts.

mod builder;
#[cfg(target_os = "linux")]
mod clock;
mod deny;
pub mod examples;
mod hold;
mod launch;
mod net;
mod proxy;
mod pump;
mod random;
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
pub use random::Rng;
pub use resp::{Reply, RespConn};
pub use server::RedisServer;
pub use shared::Hole;
pub use wait::{block_on, eventually};

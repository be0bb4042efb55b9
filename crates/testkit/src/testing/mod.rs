//! Servers with faults, clocks and certificates that a test chooses, and a TCP proxy that loses, holds, delays and cuts.

mod builder;
mod clock;
mod cluster;
mod deny;
pub mod examples;
mod hold;
mod launch;
mod net;
mod proxy;
mod pump;
mod random;
mod resp;
mod sentinels;
mod server;
mod shared;
mod tls;
mod wait;

pub use builder::RedisServerBuilder;
pub use clock::{ClockOffset, ServerClock, TestTime};
pub use cluster::RedisCluster;
pub use net::{ReservedPort, free_port};
pub use proxy::FaultProxy;
pub use random::Rng;
pub use resp::{Reply, RespConn};
pub use sentinels::Sentinels;
pub use server::RedisServer;
pub use shared::Hole;
pub use wait::{block_on, eventually};

/// The rows of a table: a line each, with `|` between the cells. A panic names a row with another number of cells.
pub fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        <[&str; N]>::try_from(cells).unwrap_or_else(|row| panic!("not {N} cells: {row:?}"))
    });
    rows.collect()
}

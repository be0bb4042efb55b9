//! A discrete-event simulation of ten to a million clients that contend for one lock. It knows the protocol and assumes the
//! rest, in [`ScaleSettings`]; it does not replace a measurement on a real server.
//!
//! Every client wants the lock again a while after it has released it. The store is one server that takes one step at a
//! time, so excess commands queue before it. Leasehold's clients are the state machines that ship, and their store is
//! [`leasehold_core::World`]. They are compared with clients of a plain key that poll, and clients that each release wakes.
//!
//! | module | purpose |
//! |---|---|
//! | `settings` | the assumptions |
//! | `bench`, `event_queue`, `server` | time, network, server |
//! | `leasehold_clients`, `rivals` | the clients |
//! | `figures` | the measurements, and the check that no two clients hold at once |
//! | `table`, `picture` | the output |

mod bench;
mod event_queue;
mod figures;
mod leasehold_clients;
mod picture;
mod rivals;
mod server;
mod settings;
mod table;

use leasehold_core::{Invalid, LockName, Ttl};

pub use figures::{Fairness, Figures};
pub use picture::picture;
pub use settings::{Crash, ScaleSettings, WaitMethod};
pub use table::{json, table};

/// Runs one experiment.
///
/// # Errors
/// [`Invalid`] if core refuses the TTL, or there is no client.
///
/// # Panics
/// If two clients believe at the same time that they hold the lock.
pub fn run(way: WaitMethod, settings: &ScaleSettings) -> Result<Figures, Invalid> {
    let name = LockName::new("scale")?;
    let ttl = Ttl::new(settings.ttl)?;
    Ok(match way {
        WaitMethod::Leasehold => {
            let mut clients = leasehold_clients::LeaseholdClients::new(settings, name, ttl);
            bench::run(&mut clients, settings, way)
        }
        WaitMethod::Poller | WaitMethod::Broadcast => {
            let mut clients = rivals::Rivals::new(settings, way == WaitMethod::Broadcast);
            bench::run(&mut clients, settings, way)
        }
    })
}

//! Ten to a million clients that want one lock: a discrete-event simulation. Must never replace a measurement on a real
//! server: it knows the protocol and assumes the rest, in [`ScaleSettings`].
//!
//! Every client wants the lock again a while after it has released it. The store is one server that takes one step at a
//! time, so that too many commands make a queue before it. Leasehold's clients are the machines that ship, and their store is
//! [`leasehold_core::World`]; beside them stand clients of a plain key that poll, and some that are all woken by each release.
//!
//! | module | what it is for |
//! |---|---|
//! | `settings` | what is assumed |
//! | `bench`, `event_queue`, `server` | time, network, server |
//! | `leasehold_clients`, `rivals` | what clients do |
//! | `figures` | what is measured, and that no two clients hold at once |
//! | `table`, `picture` | how it is shown |

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
/// [`Invalid`] when the TTL is none that core accepts, or there is no client.
///
/// # Panics
/// When two clients believe at once that they hold the lock.
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

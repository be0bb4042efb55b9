//! Model of the lock: explores the rules under every order of events, within bounds. The next state always comes from
//! [`World::apply`](leasehold_core::World::apply); this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `configs`, `setup` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `actions`, `effects`, `store`, `client` | the possible actions, and their effects |
//! | `judge`, `replies`, `liveness` | the properties: of each step, of its reply, and of each waiter when the others stop |
//! | `model`, `trace` | the lock as a subject of the frame, and the trace to a violation |

mod actions;
mod client;
mod configs;
mod effects;
mod judge;
mod liveness;
mod model;
mod replies;
mod setup;
mod state;
mod store;
mod time;
mod trace;

use leasehold_core::Invalid;

pub use self::model::Apply;
use self::model::LockModel;
pub use self::setup::Situation;
pub use crate::frame::Bounds;
use crate::frame::named_setup;
use crate::report::Finding;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    let all = configs::all(bounds);
    all.iter().map(|setup| setup.name).collect()
}

/// Explores the model of this name, with these rules: [`World::apply`](leasehold_core::World::apply), or a broken version in a test.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(bounds: Bounds, name: &str, apply: Apply) -> Result<Finding<Situation>, Invalid> {
    let setup = named_setup(configs::all(bounds), |setup| setup.name, name)?;
    Ok(LockModel::new(setup, apply)?.explore(name, setup.bounds()))
}

//! Model of a guarded cache entry: explores its rules under every order of events, within bounds. The next state always comes
//! from [`EntryState::apply`]; this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `configs`, `setup` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `actions`, `effects` | the possible actions, and their effects |
//! | `judge`, `liveness` | the properties: of each step, and of each waiter when the others stop |
//! | `model`, `trace` | the entry as a subject of the frame, and the trace to a violation |

mod actions;
mod configs;
mod effects;
mod judge;
mod liveness;
mod model;
mod setup;
mod state;
mod time;
mod trace;

use leasehold_core::Invalid;
#[cfg(doc)]
use leasehold_core::cache::EntryState;

pub use self::model::ApplyEntry;
use self::model::CacheModel;
pub use self::setup::CacheSituation;
use crate::frame::{Bounds, named_setup};
use crate::report::Finding;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    let all = configs::all(bounds);
    all.iter().map(|setup| setup.name).collect()
}

/// Explores the model of this name, with these rules: [`EntryState::apply`], or a broken version in a test.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(
    bounds: Bounds,
    name: &str,
    apply: ApplyEntry,
) -> Result<Finding<CacheSituation>, Invalid> {
    let setup = named_setup(configs::all(bounds), |setup| setup.name, name)?;
    Ok(CacheModel::new(setup, apply)?.explore(name, setup.bounds()))
}

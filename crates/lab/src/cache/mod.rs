//! Model of a guarded cache entry: explores its rules under every order of events, within bounds. The next state always comes
//! from [`EntryState::apply`]; this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | what it is for |
//! |---|---|
//! | `configs`, `setup` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `act`, `turn` | the possible actions, and their effects |
//! | `judge`, `alone` | the properties: of each step, and of each waiter when the others stop |
//! | `given`, `model`, `trace` | the exploration, and the trace to a violation |

mod act;
mod alone;
mod configs;
mod given;
mod judge;
mod model;
mod setup;
mod state;
mod time;
mod trace;
mod turn;

use leasehold_core::Invalid;
#[cfg(doc)]
use leasehold_core::cache::EntryState;

pub use self::given::ApplyEntry;
use self::given::CacheModel;
pub use self::model::CacheFinding;
pub use self::setup::CacheSituation;
use crate::rules::Bounds;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    let all = configs::all(bounds);
    all.iter().map(|setup| setup.name).collect()
}

/// Explores the model of this name, with these rules: [`EntryState::apply`], or a broken version in a test.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(bounds: Bounds, name: &str, apply: ApplyEntry) -> Result<CacheFinding, Invalid> {
    let mut all = configs::all(bounds).into_iter();
    let setup = all.find(|setup| setup.name == name).ok_or_else(|| {
        Invalid::new("model", name, format!("must be one of {:?}", names(bounds)))
    })?;
    Ok(CacheModel::new(setup, apply)?.explore())
}

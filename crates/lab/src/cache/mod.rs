//! The rules of a guarded cache entry under every order of events, within bounds. Must never copy a rule: the next state is
//! asked of [`EntryState::apply`], and what is said here is only what clients, messages and time may do, and what must hold.
//!
//! | module | what it is for |
//! |---|---|
//! | `configs`, `setup` | the models: how many clients, which faults, what has to be reached |
//! | `state`, `time` | what there is at one moment, always now |
//! | `act`, `turn` | what may happen, and what follows from it |
//! | `judge`, `alone` | what must hold: of each step, and of each waiter when others stop |
//! | `given`, `model`, `trace` | the exploration, and a way to a violation |

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

/// Explores the model of this name, with these rules: [`EntryState::apply`], or in a test something that is to be found out.
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

//! Our own rules under every order of events, within bounds. Must never copy a rule: the next state is asked of
//! [`World::apply`](leasehold_core::World::apply), and what is said here is only what clients, messages and time may do, and what must hold.
//!
//! | module | what it is for |
//! |---|---|
//! | `configs`, `setup` | the models: how many clients, which faults, what has to be reached |
//! | `state`, `time` | what there is at one moment, always now |
//! | `act`, `turn`, `store`, `client` | what may happen, and what follows from it |
//! | `before`, `judge`, `told`, `alone` | what must hold: of each step, of what it tells, and of each waiter when others stop |
//! | `given`, `model`, `trace` | the exploration, and a way to a violation |

mod act;
mod alone;
mod before;
mod client;
mod configs;
mod given;
mod judge;
mod model;
mod replies;
mod setup;
mod state;
mod store;
mod time;
mod trace;
mod turn;

use leasehold_core::Invalid;

pub use self::configs::Bounds;
pub use self::given::Apply;
use self::given::LockModel;
pub use self::model::Finding;
pub use self::setup::Situation;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    configs::all(bounds)
        .iter()
        .map(|setup| setup.name)
        .collect()
}

/// Explores the model of this name, with these rules: [`World::apply`](leasehold_core::World::apply), or in a test something that is to be found out.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(bounds: Bounds, name: &str, apply: Apply) -> Result<Finding, Invalid> {
    let setup = configs::all(bounds)
        .into_iter()
        .find(|setup| setup.name == name);
    let setup = setup.ok_or_else(|| {
        Invalid::new("model", name, format!("must be one of {:?}", names(bounds)))
    })?;
    Ok(LockModel::new(setup, apply)?.explore())
}

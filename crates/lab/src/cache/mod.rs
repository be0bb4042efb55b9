//! Model of a guarded cache entry: explores its rules under every order of events, within bounds. The next state always comes
//! from [`EntryState::apply`]; this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `configs`, `setup` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `actions`, `effects` | the possible actions, and their effects |
//! | `judge`, `liveness` | the properties: of each step, and of each waiter when the others stop |
//! | `model`, `trace` | the rules that are explored; the trace to a violation |

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

use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::cache::{EntryState, Reply};
use stateright::Property;

use self::actions::CacheAction;
use self::judge::CacheRule;
pub use self::model::ApplyEntry;
use self::model::{CacheModel, CacheTurn, GuardedEntry};
pub use self::setup::CacheSituation;
use self::setup::{CacheSetup, TICK};
use self::state::{Books, CacheClient, CachePhase, CacheState};
use crate::frame::{Bounds, Subject, kept, named_setup};
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

impl Subject for GuardedEntry {
    type Setup = CacheSetup;
    type State = CacheState;
    type Action = CacheAction;
    type Reply = Reply;
    type Situation = CacheSituation;

    const TICK: (CacheAction, Duration) = (CacheAction::Tick, TICK);

    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 6),
        ("what", 32),
        ("reply", 16),
        ("value", 12),
        ("lease", 10),
        ("loading", 0),
    ];

    fn init(model: &CacheModel) -> CacheState {
        let idle = CacheClient {
            nth: 0,
            phase: CachePhase::Idle,
            told: false,
        };
        CacheState {
            entry: EntryState::default(),
            clients: vec![idle; usize::from(model.setup.clients)],
            flight: Vec::new(),
            books: Books::default(),
        }
    }

    fn broken(state: &CacheState) -> u16 {
        state.books.broken
    }

    fn possible(model: &CacheModel, state: &CacheState, into: &mut Vec<CacheAction>) {
        model.possible(state, into);
    }

    fn act(turn: &mut CacheTurn<'_>, action: CacheAction) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<CacheModel>> {
        vec![
            kept!(
                "K1 at most one client has the lease of a load",
                CacheRule::Loaders
            ),
            kept!(
                "K1b nobody is told to load while the source is left alone",
                CacheRule::Rest
            ),
            kept!(
                "K2 the numbers that an entry gives out rise",
                CacheRule::Numbers
            ),
            kept!(
                "K3 nothing is fresh that was invalidated, or whose load the store has forgotten",
                CacheRule::Truth
            ),
            kept!(
                "K4 the version of what is stored does not fall",
                CacheRule::Falls
            ),
            kept!(
                "K4b a late value is kept if nothing newer is there",
                CacheRule::Dropped
            ),
            kept!(
                "K5 who was told to wait is told when the load ends, and nobody else",
                CacheRule::Waiters
            ),
            Property::always(
                "K5b who waits loads or has a fresh value when lease and back-off are over, once others stop",
                CacheModel::waits_end,
            ),
            kept!("K6 a step of an entry may be repeated", CacheRule::Repeats),
            kept!("K7 everything kept of an entry has an end", CacheRule::Ends),
        ]
    }

    fn cells(before: &CacheState, action: CacheAction, after: &CacheTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}

//! Model of the lock: explores the rules under every order of events, within bounds. The next state always comes from
//! [`World::apply`](leasehold_core::World::apply); this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `configs`, `setup` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `actions`, `effects`, `store`, `client` | the possible actions, and their effects |
//! | `judge`, `liveness` | the properties: of each step and its reply, and of each waiter when the others stop |
//! | `model`, `trace` | the rules that are explored; the trace to a violation |

mod actions;
mod client;
mod configs;
mod effects;
mod judge;
mod liveness;
mod model;
mod setup;
mod state;
mod store;
mod time;
mod trace;

use std::time::Duration;

use leasehold_core::{Invalid, Reply, World};
use stateright::Property;

use self::actions::Action;
use self::judge::{LockRule, is_its_hold};
pub use self::model::Apply;
use self::model::{Lock, LockModel, LockTurn};
pub use self::setup::Situation;
use self::setup::{Setup, TICK};
use self::state::{Client, State};
pub use crate::frame::Bounds;
use crate::frame::{Subject, kept, named_setup};
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

impl Subject for Lock {
    type Setup = Setup;
    type State = State;
    type Action = Action;
    type Reply = Reply;
    type Situation = Situation;

    const TICK: (Action, Duration) = (Action::Tick, TICK);

    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 5),
        ("what", 34),
        ("reply", 24),
        ("holder", 16),
        ("queue", 12),
        ("believe to hold", 0),
    ];

    fn init(model: &LockModel) -> State {
        State {
            world: World::default(),
            replica: None,
            clients: vec![Client::IDLE; usize::from(model.setup.clients)],
            flight: Vec::new(),
            seen: None,
            issued: 0,
            unclaimed: None,
            broken: 0,
        }
    }

    fn broken(state: &State) -> u16 {
        state.broken
    }

    fn possible(model: &LockModel, state: &State, into: &mut Vec<Action>) {
        model.possible(state, into);
    }

    fn act(turn: &mut LockTurn<'_>, action: Action) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<LockModel>> {
        vec![
            kept!(
                "R1 the store has at most one holder (C1)",
                LockRule::Holders
            ),
            Property::always(
                "R1b at most one client that was not robbed believes to hold the lock",
                |_, state: &State| state.believers().filter(|it| !it.robbed).count() <= 1,
            ),
            Property::always(
                "R1c of those who believe it, each has fences of its own",
                |_, state: &State| {
                    let mut fences: Vec<_> = state.believers().map(|it| it.fences).collect();
                    fences.sort_unstable();
                    fences.windows(2).all(|pair| pair[0].last < pair[1].first)
                },
            ),
            kept!(
                "R2 fences rise, and the counter is the last one (C2)",
                LockRule::Fences
            ),
            kept!(
                "R3 nobody but its owner changes a hold (C3)",
                LockRule::Strangers
            ),
            Property::always(
                "R4 whoever waits gets the lock once others stop",
                LockModel::waits_end,
            ),
            Property::always(
                "R5 a dead waiter delays by one claim window",
                LockModel::dead_grants_end,
            ),
            kept!("R6 first come, first served (C4)", LockRule::Order),
            kept!("R7 a step may be repeated (C5)", LockRule::Repeats),
            kept!("R8 a free lock keeps no waiter (C6)", LockRule::FreeQueue),
            Property::always(
                "R9 whoever believes to hold it, and was not robbed, does",
                holds_what_it_believes,
            ),
            kept!("R10 what a step answers is so", LockRule::Answers),
            kept!(
                "R11 who is given the lock, or is to give it up, is told",
                LockRule::Told
            ),
        ]
    }

    fn cells(before: &State, action: Action, after: &LockTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}

/// Whether the store holds the lock for each client that believes so and was not robbed, by the grant of its fences, until its deadline.
fn holds_what_it_believes(_: &LockModel, state: &State) -> bool {
    state.believers().filter(|it| !it.robbed).all(|it| {
        let mut holders = state.lock().into_iter().flat_map(|lock| &lock.holders);
        holders.any(|holder| is_its_hold(holder, it))
    })
}

//! Model of the lock: explores the rules under every order of events, within bounds. The next state always comes from [`World::apply`];
//! this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `model` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `turn` | the possible actions and their effects: clients, messages, the store, faults |
//! | `judge` | the properties: of each step and its reply, and of each waiter when the others stop |
//! | `trace` | the trace to a violation |

mod judge;
mod model;
mod state;
mod time;
mod trace;
mod turn;

use std::time::Duration;

use leasehold_core::{Invalid, Reply, World};
use stateright::Property;

use self::judge::{Rule, holds_what_it_believes};
pub use self::model::{Apply, Situation};
use self::model::{Fault, Limits, Lock, LockModel, LockTurn, MODELS, TICK};
use self::state::{Client, State};
use self::turn::Action;
pub use crate::frame::Bounds;
use crate::frame::{self, SetupOf, Subject, properties};
use crate::report::Finding;
use crate::text::counted_as;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    frame::names::<Lock>(bounds)
}

/// Explores the model of this name, with these rules: [`World::apply`], or a broken version in a test.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(bounds: Bounds, name: &str, apply: Apply) -> Result<Finding<Situation>, Invalid> {
    frame::check_one(bounds, name, |setup| Lock::new(setup, apply))
}

impl Subject for Lock {
    type Limits = Limits;
    type Fault = Fault;
    type State = State;
    type Action = Action;
    type Reply = Reply;
    type Situation = Situation;

    const MODELS: &'static [SetupOf<Self>] = MODELS;
    const TICK: (Action, Duration) = (Action::Tick, TICK);
    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 5),
        ("what", 34),
        ("reply", 24),
        ("holder", 16),
        ("queue", 12),
        ("believe to hold", 0),
    ];

    /// Room for one more old owner; where it has that, one client more.
    fn deeper(setup: &SetupOf<Self>) -> Limits {
        let mut limits = setup.limits;
        if limits.left_over == 0 {
            limits.left_over = 1;
        } else {
            limits.clients += 1;
        }
        limits
    }

    fn bounds(setup: &SetupOf<Self>) -> String {
        let tick = TICK.as_secs();
        let faults = setup.faults.iter().map(|fault| fault.words());
        let may_happen: Vec<_> = std::iter::once("pauses").chain(faults).collect();
        let modes = match setup.modes {
            [] => String::new(),
            modes => format!(" in the modes {}", modes.join(", ")),
        };
        format!(
            "{} clients that {}{modes}; any number of acquisitions, retries and polls each, without an end; TTL {} s in ticks of \
             {tick} s; under way at most {}, and as many wakes; no acquisition begins {}; any number of times: {}",
            setup.clients,
            if setup.waits { "wait" } else { "try" },
            u64::from(setup.ttl) * tick,
            counted_as(setup.in_flight, "request or answer", "requests or answers"),
            match setup.left_over {
                0 => "before all traces of those that are over are gone from store and network"
                    .into(),
                most =>
                    format!("while store and network have traces of more than {most} that are over"),
            },
            may_happen.join(", "),
        )
    }

    fn init(model: &LockModel) -> State {
        State {
            world: World::default(),
            replica: None,
            clients: (0..model.setup.clients)
                .map(|client| Client::new(model.subject.mode(client)))
                .collect(),
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
        properties! {
            "R1 the holders in the store admit each other (C1)" kept Rule::Holders;
            "R1b the clients that were not robbed and believe to hold the lock admit each other" always |_, state| {
                state.believers_admit_each_other()
            };
            "R1c of those who believe it, each has fences of its own, or those of its phase" always |_, state| {
                state.believers_have_fences()
            };
            "R2 fences rise from phase to phase, and the counter is the last one (C2)" kept Rule::Fences;
            "R3 nobody but its owner changes a hold (C3)" kept Rule::Strangers;
            "R4 whoever waits gets the lock once others stop" always LockModel::waits_end;
            "R5 a dead waiter delays by one claim window" always LockModel::dead_grants_end;
            "R6 first come, first served (C4)" kept Rule::Order;
            "R7 a step may be repeated (C5)" kept Rule::Repeats;
            "R8 the first waiter is not admitted beside the holders (C6)" kept Rule::FreeQueue;
            "R9 whoever believes to hold it, and was not robbed, does" always holds_what_it_believes;
            "R10 what a step answers is so" kept Rule::Answers;
            "R11 who is given the lock, or is to give it up, is told" kept Rule::Told;
            "R12 slots have different numbers, and the smallest is next (C9)" kept Rule::Slots;
        }
    }

    fn cells(before: &State, action: Action, after: &LockTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}

//! Model of a guarded cache entry: explores its rules under every order of events, within bounds. The next state always comes from
//! [`EntryState::apply`]; this module adds only the behaviour of clients, messages and time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `model` | the models: number of clients, faults, situations to reach |
//! | `state`, `time` | the state at one moment; the passing of time |
//! | `turn` | the possible actions, and their effects |
//! | `judge` | the properties: of each step, and of each waiter when the others stop |
//! | `trace` | the trace to a violation |

mod judge;
mod model;
mod state;
mod time;
mod trace;
mod turn;

use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::cache::{EntryState, Reply};
use stateright::Property;

use self::judge::Rule;
pub use self::model::{ApplyEntry, Situation};
use self::model::{
    BACK_OFF, CacheModel, CacheTurn, FRESH, Fault, GuardedEntry, LEASE, Limits, MODELS, STALE, TICK,
};
use self::state::{Books, Client, Phase, State};
use self::turn::Action;
use crate::frame::{self, Bounds, SetupOf, Subject, properties};
use crate::report::Finding;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    frame::names::<GuardedEntry>(bounds)
}

/// Explores the model of this name, with these rules: [`EntryState::apply`], or a broken version in a test.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(
    bounds: Bounds,
    name: &str,
    apply: ApplyEntry,
) -> Result<Finding<Situation>, Invalid> {
    frame::check_one(bounds, name, |_| GuardedEntry::new(apply))
}

impl Subject for GuardedEntry {
    type Limits = Limits;
    type Fault = Fault;
    type State = State;
    type Action = Action;
    type Reply = Reply;
    type Situation = Situation;

    const MODELS: &'static [SetupOf<Self>] = MODELS;
    const TICK: (Action, Duration) = (Action::Tick, TICK);
    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 6),
        ("what", 32),
        ("reply", 16),
        ("value", 12),
        ("lease", 10),
        ("loading", 0),
    ];

    /// One client more.
    fn deeper(setup: &SetupOf<Self>) -> Limits {
        Limits {
            clients: setup.clients + 1,
            ..setup.limits
        }
    }

    fn bounds(setup: &SetupOf<Self>) -> String {
        let tick = TICK.as_millis();
        let faults = setup.faults.iter().map(|fault| fault.words());
        let may_happen: Vec<_> = std::iter::once("pauses").chain(faults).collect();
        let of = |ticks: u8| u128::from(ticks) * tick;
        format!(
            "{} clients; any number of calls, retries, polls and renewals each, without an end; in ticks of {tick} ms: lease {} ms, \
             fresh for {} ms, then stale for {} ms, back-off {} ms; requests under way at most {}; no call begins while store and \
             network know of more than {} that are over; any number of times: {}",
            setup.clients,
            of(LEASE),
            of(FRESH),
            of(STALE),
            of(BACK_OFF),
            setup.in_flight,
            setup.left_over,
            may_happen.join(", "),
        )
    }

    fn init(model: &CacheModel) -> State {
        let idle = Client {
            nth: 0,
            phase: Phase::Idle,
            told: false,
        };
        State {
            entry: EntryState::default(),
            clients: vec![idle; usize::from(model.setup.clients)],
            flight: Vec::new(),
            books: Books::default(),
        }
    }

    fn broken(state: &State) -> u16 {
        state.books.broken
    }

    fn possible(model: &CacheModel, state: &State, into: &mut Vec<Action>) {
        model.possible(state, into);
    }

    fn act(turn: &mut CacheTurn<'_>, action: Action) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<CacheModel>> {
        properties! {
            "K1 at most one client has the lease of a load" kept Rule::Loaders;
            "K1b nobody is told to load while the source is left alone" kept Rule::Rest;
            "K2 the numbers that an entry gives out rise" kept Rule::Numbers;
            "K3 nothing is fresh that was invalidated, or whose load the store has forgotten" kept Rule::Truth;
            "K4 the version of what is stored does not fall" kept Rule::Falls;
            "K4b a late value is kept if nothing newer is there" kept Rule::Dropped;
            "K5 who was told to wait is told when the load ends, and nobody else" kept Rule::Waiters;
            "K5b who waits loads or has a fresh value when lease and back-off are over, once others stop"
                always CacheModel::waits_end;
            "K6 a step of an entry may be repeated" kept Rule::Repeats;
            "K7 everything kept of an entry has an end" kept Rule::Ends;
        }
    }

    fn cells(before: &State, action: Action, after: &CacheTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}

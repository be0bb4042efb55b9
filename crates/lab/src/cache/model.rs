//! The model in the form that the checker takes.

use leasehold_core::cache::EntryState;
use stateright::{Model, Property};

use super::actions::CacheAction;
use super::input::CacheModel;
use super::judge::CacheRule;
use super::setup::CacheSituation;
use super::state::{Books, CacheClient, CachePhase, CacheState};
use super::trace;
use crate::explore::explore;
use crate::report::Finding;

impl CacheModel {
    /// Explores everything within the bounds.
    pub(super) fn explore(&self) -> Finding<CacheSituation> {
        let checked = explore(self, self.setup.name, self.setup.bounds(), trace::lines);
        let number = |situation| situation as u64;
        Finding {
            missed: self.reached.missed(self.setup.reaches, number),
            checked,
        }
    }
}

/// A property that a single step can violate.
macro_rules! kept {
    ($name:literal, $rule:ident) => {
        Property::<CacheModel>::always($name, |_, state: &CacheState| {
            state.books.broken & CacheRule::$rule as u16 == 0
        })
    };
}

impl Model for CacheModel {
    type State = CacheState;
    type Action = CacheAction;

    fn init_states(&self) -> Vec<CacheState> {
        let idle = CacheClient {
            nth: 0,
            phase: CachePhase::Idle,
            told: false,
        };
        vec![CacheState {
            entry: EntryState::default(),
            clients: vec![idle; usize::from(self.setup.clients)],
            flight: Vec::new(),
            books: Books {
                lease: None,
                rests: None,
                value_old: false,
                issued: 0,
                broken: 0,
            },
        }]
    }

    fn actions(&self, state: &CacheState, actions: &mut Vec<CacheAction>) {
        if state.books.broken == 0 {
            self.possible(state, actions);
        }
    }

    fn next_state(&self, last: &CacheState, action: CacheAction) -> Option<CacheState> {
        self.step(last, action).map(|(state, _)| state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            kept!("K1 at most one client has the lease of a load", Loaders),
            kept!(
                "K1b nobody is told to load while the source is left alone",
                Rest
            ),
            kept!("K2 the numbers that an entry gives out rise", Numbers),
            kept!(
                "K3 nothing is fresh that was invalidated, or whose load the store has forgotten",
                Truth
            ),
            kept!("K4 the version of what is stored does not fall", Falls),
            kept!(
                "K4b a late value is kept if nothing newer is there",
                Dropped
            ),
            kept!(
                "K5 who was told to wait is told when the load ends, and nobody else",
                Waiters
            ),
            Property::always(
                "K5b who waits loads or has a fresh value when lease and back-off are over, once others stop",
                Self::waits_end,
            ),
            kept!("K6 a step of an entry may be repeated", Repeats),
            kept!("K7 everything kept of an entry has an end", Ends),
        ]
    }
}

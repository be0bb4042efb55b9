//! The model in the form that the checker takes.

use leasehold_core::World;
use stateright::{Model, Property};

use super::actions::Action;
use super::before::is_its_hold;
use super::input::LockModel;
use super::judge::LockRule;
use super::setup::Situation;
use super::state::{AcquisitionId, Client, Phase, State};
use super::time::{NOW, TICK_MS};
use super::trace;
use crate::explore::explore;
use crate::report::Finding;

impl LockModel {
    /// Explores everything within the bounds.
    pub(super) fn explore(&self) -> Finding<Situation> {
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
        Property::<LockModel>::always($name, |_, state: &State| {
            state.broken & LockRule::$rule as u16 == 0
        })
    };
}

impl Model for LockModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let idle = Client {
            nth: 0,
            phase: Phase::Idle,
            robbed: false,
            away: false,
        };
        vec![State {
            world: World::default(),
            replica: None,
            clients: vec![idle; usize::from(self.setup.clients)],
            flight: Vec::new(),
            seen: None,
            issued: 0,
            unclaimed: None,
            broken: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken == 0 {
            self.possible(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.step(last, action).map(|(state, _)| state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            kept!("R1 the store has at most one holder (C1)", Holders),
            Property::always(
                "R1b at most one client that was not robbed believes to hold the lock",
                |_, state| believers(state).filter(|client| !client.robbed).count() <= 1,
            ),
            Property::always(
                "R1c of those who believe it, each has fences of its own",
                |_, state| {
                    let fences = |client: &Client| match client.phase {
                        Phase::Holding { fences, .. } => Some(fences),
                        _ => None,
                    };
                    let mut fences: Vec<_> = believers(state).filter_map(fences).collect();
                    fences.sort_unstable();
                    fences.windows(2).all(|pair| pair[0].last < pair[1].first)
                },
            ),
            kept!(
                "R2 fences rise, and the counter is the last one (C2)",
                Fences
            ),
            kept!("R3 nobody but its owner changes a hold (C3)", Strangers),
            Property::always(
                "R4 whoever waits gets the lock once others stop",
                Self::waits_end,
            ),
            Property::always(
                "R5 a dead waiter delays by one claim window",
                Self::dead_grants_end,
            ),
            kept!("R6 first come, first served (C4)", Order),
            kept!("R7 a step may be repeated (C5)", Repeats),
            kept!("R8 a free lock keeps no waiter (C6)", FreeQueue),
            Property::always(
                "R9 whoever believes to hold it, and was not robbed, does",
                holds_what_it_believes,
            ),
            kept!("R10 what a step answers is so", Answers),
            kept!(
                "R11 who is given the lock, or is to give it up, is told",
                Told
            ),
        ]
    }
}

fn believers(state: &State) -> impl Iterator<Item = &Client> {
    state
        .clients
        .iter()
        .filter(|client| matches!(client.phase, Phase::Holding { .. }))
}

/// Whether the store holds the lock for this client, by the grant of its fences, at least until its own deadline.
fn holds_what_it_believes(_: &LockModel, state: &State) -> bool {
    (0u8..)
        .zip(&state.clients)
        .all(|(index, client)| match client.phase {
            Phase::Holding { left, fences } if !client.robbed => {
                let id = AcquisitionId {
                    client: index,
                    nth: client.nth,
                };
                let until = NOW.millis() + u64::from(left) * TICK_MS;
                let mut holders = state.lock().into_iter().flat_map(|lock| &lock.holders);
                holders.any(|holder| is_its_hold(holder, (id, fences), until))
            }
            _ => true,
        })
}

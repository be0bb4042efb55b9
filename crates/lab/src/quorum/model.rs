//! The model in the form that the checker takes.

use stateright::{Model, Property};

use super::actions::QuorumAction;
use super::input::QuorumModel;
use super::judge::{QuorumRule, is_exclusive};
use super::setup::{QuorumFault, QuorumSituation};
use super::state::{Alike, CLIENTS, NODES, QuorumBooks, QuorumState};
use super::trace;
use crate::explore::explore;
use crate::report::Finding;

impl QuorumModel {
    /// Explores everything within the bounds.
    pub(super) fn explore(&self) -> Finding<QuorumSituation> {
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
        Property::<QuorumModel>::always($name, |_, state: &QuorumState| {
            state.books.broken & QuorumRule::$rule as u8 == 0
        })
    };
}

impl Model for QuorumModel {
    type State = QuorumState;
    type Action = QuorumAction;

    fn init_states(&self) -> Vec<QuorumState> {
        let [first, second] = self.setup.clients;
        let [_, beside, other] = self.setup.nodes;
        let clients =
            std::array::from_fn(|client| self.new_client(u8::try_from(client).unwrap_or_default()));
        vec![QuorumState {
            nodes: std::array::from_fn(|node| self.new_node(node)),
            clients,
            late: [[None; NODES]; CLIENTS],
            books: QuorumBooks {
                highest: 0,
                ended: 0,
                given: [0; 4],
                broken: 0,
            },
            spent: 0,
            alike: Alike {
                clients: first == second && !self.setup.may(QuorumFault::Unreachable),
                nodes: beside == other && !self.setup.can_fail(),
            },
        }]
    }

    fn actions(&self, state: &QuorumState, actions: &mut Vec<QuorumAction>) {
        if state.books.broken == 0 {
            self.possible(state, actions);
        }
    }

    fn next_state(&self, last: &QuorumState, action: QuorumAction) -> Option<QuorumState> {
        let step = self.step(last, action)?;
        self.reached.note_all(step.reached);
        Some(step.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "VQ1 at most one client that was not robbed relies on a lease (QR1)",
                |_, state| is_exclusive(state),
            ),
            kept!(
                "VQ2 no two leases share a fence, and the later one has the higher fence (QR2)",
                Order
            ),
            kept!(
                "VQ3 a lease that was asked for after another was handed out has the higher fence (QR3)",
                RealTime
            ),
            kept!(
                "VQ4 no node keeps a vote or a place for an owner that has settled, or waits without the lead (V1, V3)",
                LeftOver
            ),
            Property::always(
                "VQ5 some client gets a lease once faults stop",
                Self::reaches_a_lease,
            ),
            kept!(
                "VQ6 who knows of waiters gets no lease before the lead has answered (V5)",
                Passed
            ),
        ]
    }
}

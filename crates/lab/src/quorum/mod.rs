//! Model of a quorum: explores its rules under every order of events, within bounds. A node is core's `World`, and a client counts votes by
//! core's `Round` and chooses numbers by core's `Proposer`. This module adds the rest of a client in the order of the shipped store,
//! messages, time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `configs`, `setup` | the models: clocks, faults, situations to reach |
//! | `state`, `symmetry`, `numbers` | the state at one moment, its names, and the passing of time |
//! | `actions`, `effects`, `faults` | the possible actions, and their effects |
//! | `node` | the step of a node |
//! | `round`, `acquire`, `settle` | core's rounds and proposals; a client's acquisition; its renewals and releases |
//! | `judge`, `liveness` | the properties of each lease and vote; and whether there is a lease when faults stop |
//! | `model`, `trace` | the rules that are explored; the trace to a violation |
//!
//! # Properties
//!
//! - **VQ1** At most one client relies on a lease, except one that a break or a clock has robbed of votes (QR1).
//! - **VQ2** No two leases share a fence. Of two that exclude each other, the later one has the higher fence (QR2).
//! - **VQ3** A lease that was asked for after another one was handed out has the higher fence (QR3).
//! - **VQ4** No node keeps a vote or a place for an owner that has settled there, unless it crashed or a late request came. Nor does one
//!   keep a vote for a waiter without the vote of the lead.
//! - **VQ5** From each state, some client gets a lease once faults stop, also with one node whose vote never ends.
//! - **VQ6** A client that knows of waiters gets no lease before the lead has answered.
//!
//! # Rules that it leaves out
//!
//! The shipped client has more rules. Tests of the shipped machine run these instead, above all its simulation (`simulation::quorum` of
//! the library):
//!
//! - A proposal follows the release of this client's owner before it (V2). Here a client begins when the owner before has settled.
//! - An owner asks again while its acquisition is under way, or after its lease came too late. A wake comes late.
//! - A release, or a vote that is given back, is repeated until no earlier proposal can arrive (V1). Here each arrives once, and a vote
//!   that comes later stays until its TTL is over.
//! - A repair with other fences where a lease outlives its TTL: only one model has such repairs, and its leases last for a tick.
//! - A renewal without an answer; locks that are kept or detached; several names; blocks; five nodes.

mod acquire;
mod actions;
mod configs;
mod effects;
mod faults;
mod judge;
mod liveness;
mod model;
mod node;
mod numbers;
mod round;
mod settle;
mod setup;
mod state;
mod symmetry;
mod trace;

use std::time::Duration;

use leasehold_core::{Invalid, Reply};
use stateright::Property;

use self::actions::QuorumAction;
use self::judge::{QuorumRule, is_exclusive};
pub use self::model::{ClientRules, Counting, QuorumRules};
use self::model::{Quorum, QuorumModel, QuorumTurn};
pub use self::setup::QuorumSituation;
use self::setup::{QuorumFault, QuorumSetup, TICK_MS};
use self::state::{Alike, CLIENTS, NODES, QuorumBooks, QuorumState};
use crate::frame::{Bounds, Subject, kept, named_setup};
use crate::report::Finding;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    let all = configs::all(bounds);
    all.iter().map(|setup| setup.name).collect()
}

/// Explores the model of this name, with these rules.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(
    bounds: Bounds,
    name: &str,
    rules: QuorumRules,
) -> Result<Finding<QuorumSituation>, Invalid> {
    let setup = named_setup(configs::all(bounds), |setup| setup.name, name)?;
    Ok(QuorumModel::new(setup, rules)?.explore(name, setup.bounds()))
}

impl Subject for Quorum {
    type Setup = QuorumSetup;
    type State = QuorumState;
    type Action = QuorumAction;
    type Reply = Reply;
    type Situation = QuorumSituation;

    const TICK: (QuorumAction, Duration) = (QuorumAction::Tick, Duration::from_millis(TICK_MS));

    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 6),
        ("what", 38),
        ("reply", 14),
        ("n1", 12),
        ("n2", 12),
        ("n3", 12),
        ("clients", 0),
    ];

    fn init(model: &QuorumModel) -> QuorumState {
        let [first, second] = model.setup.clients;
        let [_, beside, other] = model.setup.nodes;
        let clients = std::array::from_fn(|client| {
            model.new_client(u8::try_from(client).unwrap_or_default())
        });
        QuorumState {
            nodes: std::array::from_fn(|node| model.new_node(node)),
            clients,
            late: [[None; NODES]; CLIENTS],
            books: QuorumBooks::default(),
            spent: 0,
            alike: Alike {
                clients: first == second && !model.setup.may(QuorumFault::Unreachable),
                nodes: beside == other && !model.setup.can_fail(),
            },
        }
    }

    fn broken(state: &QuorumState) -> u16 {
        state.books.broken.into()
    }

    fn possible(model: &QuorumModel, state: &QuorumState, into: &mut Vec<QuorumAction>) {
        model.possible(state, into);
    }

    fn act(turn: &mut QuorumTurn<'_>, action: QuorumAction) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<QuorumModel>> {
        vec![
            Property::always(
                "VQ1 at most one client that was not robbed relies on a lease (QR1)",
                |_, state| is_exclusive(state),
            ),
            kept!(
                "VQ2 no two leases share a fence, and the later one has the higher fence (QR2)",
                QuorumRule::Order
            ),
            kept!(
                "VQ3 a lease that was asked for after another was handed out has the higher fence (QR3)",
                QuorumRule::RealTime
            ),
            kept!(
                "VQ4 no node keeps a vote or a place for an owner that has settled, or waits without the lead (V1, V3)",
                QuorumRule::LeftOver
            ),
            Property::always(
                "VQ5 some client gets a lease once faults stop",
                QuorumModel::reaches_a_lease,
            ),
            kept!(
                "VQ6 who knows of waiters gets no lease before the lead has answered (V5)",
                QuorumRule::Passed
            ),
        ]
    }

    fn cells(before: &QuorumState, action: QuorumAction, after: &QuorumTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}

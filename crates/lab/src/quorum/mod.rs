//! Model of a quorum: explores its rules under every order of events, within bounds. A node is core's `World`, and a client counts votes by
//! core's `Round` and chooses numbers by core's `Proposer`. This module adds the rest of a client in the order of the shipped store,
//! messages, time, and the properties.
//!
//! | module | purpose |
//! |---|---|
//! | `model` | the models: clocks, faults, situations to reach; the rules that are explored |
//! | `state`, `numbers` | the state at one moment, its names, and the passing of time |
//! | `node` | the step of a node |
//! | `client` | core's rounds and proposals; a client's acquisition; its renewals and releases |
//! | `turn` | the possible actions, and their effects on messages and by faults |
//! | `judge` | the properties of each lease and vote; and whether there is a lease when faults stop |
//! | `trace` | the trace to a violation |
//!
//! # Properties
//!
//! - **VQ1** At most one client relies on a lease, or all are readers; except one that a break or a clock has robbed of votes (QR1).
//! - **VQ2** Of two leases that exclude each other, the later one has the higher fence (QR2). For a reader, its number counts as the fence
//!   (QR10).
//! - **VQ3** A lease that was asked for after another one was handed out has the higher fence (QR3), unless both are readers'.
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
//! - No reader passes a writer that waits (V5): that takes three owners. A client that heard of waiters asks the lead first (V8).
//! - An owner asks again while its acquisition is under way, or after its lease came too late. A wake comes late.
//! - A release, or a vote that is given back, is repeated until no earlier proposal can arrive (V1). Here each arrives once, and a vote
//!   that comes later stays until its TTL is over.
//! - A repair with other fences where a lease outlives its TTL: only one model has such repairs, and its leases last for a tick.
//! - A renewal without an answer; locks that are kept or detached; several names; blocks; five nodes.

mod client;
mod judge;
mod model;
mod node;
mod numbers;
mod state;
mod trace;
mod turn;

use std::time::Duration;

use leasehold_core::{Invalid, Reply};
use stateright::Property;

use self::judge::{Rule, is_exclusive};
pub use self::model::{ClientRules, Counting, QuorumRules, Situation};
use self::model::{
    Fault, Limits, MODELS, Quorum, QuorumModel, QuorumTurn, Recalls, Setup, TICK_MS,
};
use self::state::{Alike, Books, CLIENTS, NODES, State};
use self::turn::Action;
use crate::frame::{self, Bounds, Subject, properties};
use crate::report::Finding;

/// The names of the models.
pub fn names(bounds: Bounds) -> Vec<&'static str> {
    frame::names::<Quorum>(bounds)
}

/// Explores the model of this name, with these rules.
///
/// # Errors
/// [`Invalid`] if there is no such model.
pub fn check_one(
    bounds: Bounds,
    name: &str,
    rules: QuorumRules,
) -> Result<Finding<Situation>, Invalid> {
    frame::check_one(bounds, name, |setup| Quorum::new(setup, rules))
}

impl Subject for Quorum {
    type Limits = Limits;
    type Fault = Fault;
    type State = State;
    type Action = Action;
    type Reply = Reply;
    type Situation = Situation;

    const MODELS: &'static [Setup] = MODELS;
    const TICK: (Action, Duration) = (Action::Tick, Duration::from_millis(TICK_MS));
    const COLUMNS: &'static [(&'static str, usize)] = &[
        ("time", 6),
        ("what", 38),
        ("reply", 14),
        ("n1", 12),
        ("n2", 12),
        ("n3", 12),
        ("clients", 0),
    ];

    /// One more round, later requests, two faults, at any node. With two votes that never end there is no majority, so there is one.
    fn deeper(setup: &Setup) -> Limits {
        let is_endless = setup.may_any(&[Fault::EndlessVote, Fault::ForeignVote]);
        Limits {
            rounds: setup.rounds + 1,
            lag: setup.lag + 1,
            times: if is_endless { 1 } else { 2 },
            at_lead: false,
            ..setup.limits
        }
    }

    fn bounds(setup: &Setup) -> String {
        let faults = setup.faults.iter();
        let (counted, free): (Vec<_>, Vec<_>) = faults.copied().partition(|it| it.is_counted());
        let words = |faults: &[Fault]| {
            let words: Vec<_> = faults.iter().map(|fault| fault.words()).collect();
            words.join(", ")
        };
        let mut events = vec![match setup.lag {
            0 => "time passes while no message is under way".to_owned(),
            lag => format!("time passes while at most {lag} messages are under way"),
        }];
        if !counted.is_empty() {
            let times = match setup.times {
                1 => "once".to_owned(),
                times => format!("at most {times} times"),
            };
            let place = if setup.at_lead { " at the lead" } else { "" };
            events.push(format!("{times}{place}: {}", words(&counted)));
        }
        if !free.is_empty() {
            events.push(format!("any number of times: {}", words(&free)));
        }
        let seconds = TICK_MS / 1_000;
        let clocks = |ahead: &[i8]| {
            let seconds = ahead.iter().map(|ahead| i64::from(*ahead) * 5);
            let texts = seconds.map(|by| {
                if by > 0 {
                    format!("+{by}")
                } else {
                    by.to_string()
                }
            });
            texts.collect::<Vec<_>>().join("/")
        };
        format!(
            "{NODES} nodes, {CLIENTS} clients that {}{}; acquisitions without an end, of at most {} rounds and {} repeats each; TTL {} s \
             in ticks of {seconds} s; blocks of one fence, at most {} above the clocks; clocks of clients {} s, of nodes {} s; under way \
             at most one request of a client to a node, and the next one; {}",
            if setup.waits { "wait" } else { "try" },
            match setup.recalls {
                Recalls::Nothing => "",
                Recalls::Nodes => " and remember which nodes answered",
                Recalls::Clocks => " and remember the nodes and their clocks",
            },
            setup.rounds,
            setup.tries,
            u64::from(setup.ttl) * seconds,
            setup.above,
            clocks(&setup.clients),
            clocks(&setup.nodes),
            events.join("; "),
        )
    }

    fn init(model: &QuorumModel) -> State {
        use Fault::{LateRequest, LostMessage, OneReads, Unreachable};
        let setup = &model.setup;
        let [first, second] = setup.clients;
        let [_, beside, other] = setup.nodes;
        // If a node's answers can fail, another one may lead.
        let one_leads = !setup.may_any(&[LateRequest, LostMessage, Unreachable]);
        State {
            nodes: std::array::from_fn(|node| model.new_node(node)),
            clients: [model.new_client(0), model.new_client(1)],
            late: [[None; NODES]; CLIENTS],
            books: Books::default(),
            spent: 0,
            alike: Alike {
                clients: first == second && !setup.may_any(&[Unreachable, OneReads]),
                nodes: beside == other && one_leads,
            },
        }
    }

    fn broken(state: &State) -> u16 {
        state.books.broken.into()
    }

    fn possible(model: &QuorumModel, state: &State, into: &mut Vec<Action>) {
        model.possible(state, into);
    }

    fn act(turn: &mut QuorumTurn<'_>, action: Action) -> Option<()> {
        turn.carry_out(action)
    }

    fn properties() -> Vec<Property<QuorumModel>> {
        properties! {
            "VQ1 at most one client that was not robbed relies on a lease, or all are readers (QR1)" always |_, state| is_exclusive(state);
            "VQ2 of two leases that exclude each other, the later one has the higher fence (QR2)" kept Rule::Order;
            "VQ3 a lease that was asked for after another was handed out has the higher fence (QR3)" kept Rule::RealTime;
            "VQ4 no node keeps a vote or a place for an owner that has settled, or waits without the lead (V1, V3)"
                kept Rule::LeftOver;
            "VQ5 some client gets a lease once faults stop" always QuorumModel::reaches_a_lease;
            "VQ6 who knows of waiters gets no lease before the lead has answered (V5)" kept Rule::Passed;
        }
    }

    fn cells(before: &State, action: Action, after: &QuorumTurn<'_>) -> Vec<String> {
        trace::cells(before, action, after)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use std::collections::{HashSet, VecDeque};

    use stateright::Model;

    use super::{Quorum, QuorumModel, QuorumRules};
    use crate::frame::{Bounds, setups};

    /// How many states of each model are expanded.
    const MOST: usize = 2_000;

    /// No test explores the larger models to their end, but a violation that lies in their bounds comes early.
    #[test]
    fn larger_models_hold_in_their_first_states() {
        for setup in setups::<Quorum>(Bounds::Deep) {
            let quorum = Quorum::new(&setup, QuorumRules::SOUND).unwrap();
            let model = QuorumModel::of(setup, quorum);
            let mut known = HashSet::new();
            let mut queue = VecDeque::from(model.init_states());
            for _ in 0..MOST {
                let state = queue.pop_front().unwrap();
                for property in model.properties() {
                    let holds = (property.condition)(&model, &state);
                    assert!(holds, "{}: {}\n{state:#?}", setup.name, property.name);
                }
                let mut actions = Vec::new();
                model.actions(&state, &mut actions);
                for action in actions {
                    let Some(next) = model.next_state(&state, action) else {
                        continue;
                    };
                    if known.insert(next.fingerprint()) {
                        queue.push_back(next);
                    }
                }
            }
        }
    }
}

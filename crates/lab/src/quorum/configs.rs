//! The quorum models, by name. Each has faults of one kind.

use super::setup::{QuorumFault, QuorumSetup, QuorumSituation as S, Recalls};
use crate::frame::Bounds;

/// The models within these bounds.
pub(super) fn all(bounds: Bounds) -> Vec<QuorumSetup> {
    bounds.of(CI, deeper)
}

/// A larger version: one more round, later requests, two faults, at any node. With two votes that never end there is no majority, so there
/// is one.
fn deeper(setup: &QuorumSetup) -> QuorumSetup {
    use QuorumFault::{EndlessVote, ForeignVote};
    let is_endless = [EndlessVote, ForeignVote]
        .into_iter()
        .any(|fault| setup.may(fault));
    QuorumSetup {
        rounds: setup.rounds + 1,
        lag: setup.lag + 1,
        times: if is_endless { 1 } else { 2 },
        at_lead: false,
        ..*setup
    }
}

/// A model without faults other than pauses.
const PLAIN: QuorumSetup = QuorumSetup {
    name: "",
    ttl: 2,
    waits: false,
    recalls: Recalls::Nothing,
    rounds: 2,
    tries: 1,
    lag: 1,
    above: 2,
    apart: 2,
    clients: [0, 0],
    nodes: [0; 3],
    faults: &[],
    at_lead: false,
    times: 1,
    reaches: &[],
};

const CI: &[QuorumSetup] = &[
    QuorumSetup {
        name: "quorum",
        reaches: &[
            S::FirstRound,
            S::Raised,
            S::Busy,
            S::Split,
            S::AskedAgain,
            S::OldAnswer,
            S::LateVote,
            S::TooLate,
            S::DeadlinePassed,
            S::Expired,
            S::WithoutLead,
        ],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum queue",
        lag: 0,
        above: 1,
        waits: true,
        clients: [0, 0],
        rounds: 1,
        tries: 0,
        reaches: &[S::FirstRound, S::Busy, S::Granted, S::KeptVotes, S::Expired],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum newcomer",
        lag: 0,
        above: 0,
        waits: true,
        recalls: Recalls::Nodes,
        rounds: 1,
        tries: 0,
        faults: &[QuorumFault::GivesUp],
        reaches: &[S::AwaitedLead, S::KeptVotes, S::Busy, S::Expired],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum giving up",
        lag: 0,
        above: 1,
        faults: &[QuorumFault::GivesUp],
        reaches: &[S::Raised, S::Busy, S::AskedAgain, S::LateVote, S::Expired],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum clocks apart",
        lag: 0,
        above: 0,
        clients: [0, 1],
        nodes: [0, 1, -1],
        reaches: &[S::FirstRound, S::Raised, S::Busy],
        recalls: Recalls::Clocks,
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum renewal",
        lag: 1,
        above: 1,
        faults: &[QuorumFault::Renewal],
        reaches: &[S::Renewed, S::Repaired, S::Expired, S::DeadlinePassed],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum repair",
        lag: 0,
        above: 1,
        ttl: 1,
        tries: 0,
        rounds: 1,
        faults: &[
            QuorumFault::LostMemory,
            QuorumFault::Renewal,
            QuorumFault::OtherFences,
        ],
        reaches: &[S::MemoryLost, S::Quarantined, S::Repaired, S::RepairedAbove],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum lost message",
        lag: 0,
        above: 1,
        faults: &[QuorumFault::LostMessage],
        rounds: 2,
        reaches: &[
            S::AnswerLost,
            S::FirstRound,
            S::Busy,
            S::Expired,
            S::WithoutLead,
        ],
        tries: 0,
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum late request",
        lag: 0,
        above: 0,
        faults: &[QuorumFault::LateRequest, QuorumFault::Repeated],
        rounds: 1,
        tries: 0,
        reaches: &[S::AppliedLate, S::FirstRound, S::Busy, S::Expired],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum crash",
        lag: 0,
        above: 1,
        faults: &[QuorumFault::Crash],
        reaches: &[
            S::CrashedHolding,
            S::CrashedAcquiring,
            S::Raised,
            S::Expired,
        ],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum lost memory",
        lag: 0,
        above: 0,
        ttl: 1,
        clients: [2, -1],
        faults: &[QuorumFault::LostMemory],
        tries: 0,
        at_lead: true,
        reaches: &[
            S::MemoryLost,
            S::Quarantined,
            S::TrustedAgain,
            S::BelowFloor,
            S::Raised,
        ],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum break",
        lag: 0,
        above: 1,
        faults: &[QuorumFault::Break],
        reaches: &[S::Broken, S::BrokenOfAll, S::RobbedBelieves, S::Raised],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum clock jump",
        lag: 0,
        above: 1,
        faults: &[QuorumFault::ClockJump],
        reaches: &[S::JumpedOverAll, S::RobbedBelieves, S::Expired],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum lead unreachable",
        lag: 0,
        above: 1,
        faults: &[QuorumFault::Unreachable],
        recalls: Recalls::Nodes,
        reaches: &[S::WithoutLead, S::FirstRound, S::Busy, S::Raised],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum endless vote",
        lag: 0,
        above: 1,
        recalls: Recalls::Nodes,
        faults: &[QuorumFault::EndlessVote],
        reaches: &[S::PassedStuckLead, S::WithoutLead, S::Busy, S::Raised],
        ..PLAIN
    },
    QuorumSetup {
        name: "quorum foreign vote",
        lag: 0,
        above: 1,
        recalls: Recalls::Nodes,
        faults: &[QuorumFault::ForeignVote],
        reaches: &[S::PassedProgram, S::Busy, S::Raised],
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use std::collections::{HashSet, VecDeque};
    use std::hash::{DefaultHasher, Hash, Hasher};

    use stateright::Model;

    use super::all;
    use crate::frame::Bounds;
    use crate::quorum::model::{QuorumModel, QuorumRules};

    /// How many states of each model are expanded.
    const MOST: usize = 2_000;

    /// No test explores the larger models to their end, but a violation that lies in their bounds comes early.
    #[test]
    fn larger_models_hold_in_their_first_states() {
        for setup in all(Bounds::Deep) {
            let model = QuorumModel::new(setup, QuorumRules::SOUND).unwrap();
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
                    let mut hasher = DefaultHasher::new();
                    next.hash(&mut hasher);
                    if known.insert(hasher.finish()) {
                        queue.push_back(next);
                    }
                }
            }
        }
    }
}

//! The quorum models, by name. Each has faults of one kind.

use super::setup::{QuorumFault, QuorumSetup, QuorumSituation, Recalls};
use crate::frame::{Bounds, setups};

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

const CI: &[QuorumSetup] = setups! {
    QuorumSetup, QuorumFault, QuorumSituation, PLAIN;

    "quorum" {}
        may []
        reaches [FirstRound, Raised, Busy, Split, AskedAgain, OldAnswer, LateVote, TooLate, DeadlinePassed,
            Expired, WithoutLead];

    "quorum queue" { lag: 0, above: 1, waits: true, rounds: 1, tries: 0 }
        may []
        reaches [FirstRound, Busy, Granted, KeptVotes, Expired];

    "quorum newcomer" { lag: 0, above: 0, waits: true, recalls: Recalls::Nodes, rounds: 1, tries: 0 }
        may [GivesUp]
        reaches [AwaitedLead, KeptVotes, Busy, Expired];

    "quorum giving up" { lag: 0, above: 1 }
        may [GivesUp]
        reaches [Raised, Busy, AskedAgain, LateVote, Expired];

    "quorum clocks apart" { lag: 0, above: 0, clients: [0, 1], nodes: [0, 1, -1], recalls: Recalls::Clocks }
        may []
        reaches [FirstRound, Raised, Busy];

    "quorum renewal" { above: 1 }
        may [Renewal]
        reaches [Renewed, Repaired, Expired, DeadlinePassed];

    "quorum repair" { lag: 0, above: 1, ttl: 1, tries: 0, rounds: 1 }
        may [LostMemory, Renewal, OtherFences]
        reaches [MemoryLost, Quarantined, Repaired, RepairedAbove];

    "quorum lost message" { lag: 0, above: 1, tries: 0 }
        may [LostMessage]
        reaches [AnswerLost, FirstRound, Busy, Expired, WithoutLead];

    "quorum late request" { lag: 0, above: 0, rounds: 1, tries: 0 }
        may [LateRequest, Repeated]
        reaches [AppliedLate, FirstRound, Busy, Expired];

    "quorum crash" { lag: 0, above: 1 }
        may [Crash]
        reaches [CrashedHolding, CrashedAcquiring, Raised, Expired];

    "quorum lost memory" { lag: 0, above: 0, ttl: 1, clients: [2, -1], tries: 0, at_lead: true }
        may [LostMemory]
        reaches [MemoryLost, Quarantined, TrustedAgain, BelowFloor, Raised];

    "quorum break" { lag: 0, above: 1 }
        may [Break]
        reaches [Broken, BrokenOfAll, RobbedBelieves, Raised];

    "quorum clock jump" { lag: 0, above: 1 }
        may [ClockJump]
        reaches [JumpedOverAll, RobbedBelieves, Expired];

    "quorum lead unreachable" { lag: 0, above: 1, recalls: Recalls::Nodes }
        may [Unreachable]
        reaches [WithoutLead, FirstRound, Busy, Raised];

    "quorum endless vote" { lag: 0, above: 1, recalls: Recalls::Nodes }
        may [EndlessVote]
        reaches [PassedStuckLead, WithoutLead, Busy, Raised];

    "quorum foreign vote" { lag: 0, above: 1, recalls: Recalls::Nodes }
        may [ForeignVote]
        reaches [PassedProgram, Busy, Raised];
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use std::collections::{HashSet, VecDeque};

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
                    if known.insert(next.fingerprint()) {
                        queue.push_back(next);
                    }
                }
            }
        }
    }
}

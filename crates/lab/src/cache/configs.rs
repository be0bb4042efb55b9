//! The models that are explored, by name. Must never hold two that differ in nothing but size: size is what [`Bounds`] says.

use super::setup::{Fault, Setup, Situation as S};
use crate::rules::Bounds;

/// The models within these bounds.
pub(super) fn all(bounds: Bounds) -> Vec<Setup> {
    match bounds {
        Bounds::Ci => CI.to_vec(),
        Bounds::Deep => CI.iter().map(deeper).collect(),
    }
}

/// The same with one client more.
fn deeper(setup: &Setup) -> Setup {
    Setup {
        clients: setup.clients + 1,
        ..*setup
    }
}

/// A model in which nothing happens but loads, slow ones and pauses.
const PLAIN: Setup = Setup {
    name: "",
    clients: 3,
    in_flight: 0,
    left_over: 1,
    faults: &[],
    reaches: &[],
};

const CI: &[Setup] = &[
    Setup {
        name: "cache",
        clients: 4,
        reaches: &[
            S::Fresh,
            S::Busy,
            S::TwoWait,
            S::StaleServed,
            S::Woken,
            S::Renewed,
            S::TakenOver,
            S::LateKept,
            S::Overtaken,
        ],
        ..PLAIN
    },
    Setup {
        name: "cache invalidation",
        faults: &[Fault::Invalidate],
        reaches: &[
            S::InvalidatedDuringLoad,
            S::StoredAsStale,
            S::TakenOver,
            S::Woken,
            S::LateKept,
            S::StaleServed,
        ],
        ..PLAIN
    },
    Setup {
        name: "cache early refresh",
        faults: &[Fault::Refresh, Fault::Invalidate],
        reaches: &[S::RefreshedEarly, S::Busy, S::Overtaken, S::StoredAsStale],
        ..PLAIN
    },
    Setup {
        name: "cache failing source",
        faults: &[Fault::Fail, Fault::Invalidate],
        reaches: &[S::BackOff, S::BackOffEnded, S::Woken, S::StaleServed],
        ..PLAIN
    },
    Setup {
        name: "cache crash",
        faults: &[Fault::Crash],
        reaches: &[S::CrashedLoading, S::Busy, S::TwoWait, S::TakenOver],
        ..PLAIN
    },
    Setup {
        name: "cache lost reply",
        faults: &[Fault::LostReply, Fault::Invalidate, Fault::Fail],
        reaches: &[
            S::CommitUnheard,
            S::GrantUnheard,
            S::CommittedTwice,
            S::StoredAsStale,
        ],
        ..PLAIN
    },
    Setup {
        name: "cache delayed command",
        clients: 2,
        in_flight: 1,
        faults: &[Fault::LateRequest, Fault::Twice, Fault::Invalidate],
        reaches: &[
            S::AppliedLate,
            S::CommittedTwice,
            S::LateKept,
            S::Overtaken,
            S::StoredAsStale,
        ],
        ..PLAIN
    },
    Setup {
        name: "cache eviction",
        faults: &[Fault::LostControl, Fault::LostValue, Fault::Invalidate],
        reaches: &[
            S::ControlLost,
            S::ForgottenCommit,
            S::ValueLost,
            S::StoredAsStale,
        ],
        ..PLAIN
    },
    Setup {
        name: "cache clock set back",
        faults: &[
            Fault::ClockBack,
            Fault::LostControl,
            Fault::LostValue,
            Fault::Invalidate,
        ],
        reaches: &[
            S::ClockSetBack,
            S::ControlLost,
            S::UnknownCommit,
            S::StoredAhead,
            S::StoredAsStale,
            S::Overtaken,
        ],
        ..PLAIN
    },
];

//! The cache models, by name. Two models never differ in size only: [`Bounds`] chooses the size.

use super::setup::{CacheFault, CacheSetup, CacheSituation as S};
use crate::frame::Bounds;

/// The models within these bounds.
pub(super) fn all(bounds: Bounds) -> Vec<CacheSetup> {
    bounds.of(CI, deeper)
}

/// A larger version, with one client more.
fn deeper(setup: &CacheSetup) -> CacheSetup {
    CacheSetup {
        clients: setup.clients + 1,
        ..*setup
    }
}

/// A model without faults: only loads, slow loads and pauses.
const PLAIN: CacheSetup = CacheSetup {
    name: "",
    clients: 3,
    in_flight: 0,
    left_over: 1,
    faults: &[],
    reaches: &[],
};

const CI: &[CacheSetup] = &[
    CacheSetup {
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
    CacheSetup {
        name: "cache invalidation",
        faults: &[CacheFault::Invalidate],
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
    CacheSetup {
        name: "cache early refresh",
        faults: &[CacheFault::Refresh, CacheFault::Invalidate],
        reaches: &[S::RefreshedEarly, S::Busy, S::Overtaken, S::StoredAsStale],
        ..PLAIN
    },
    CacheSetup {
        name: "cache failing source",
        faults: &[CacheFault::Fail, CacheFault::Invalidate],
        reaches: &[S::BackOff, S::BackOffEnded, S::Woken, S::StaleServed],
        ..PLAIN
    },
    CacheSetup {
        name: "cache crash",
        faults: &[CacheFault::Crash],
        reaches: &[S::CrashedLoading, S::Busy, S::TwoWait, S::TakenOver],
        ..PLAIN
    },
    CacheSetup {
        name: "cache lost reply",
        faults: &[
            CacheFault::LostReply,
            CacheFault::Invalidate,
            CacheFault::Fail,
        ],
        reaches: &[
            S::CommitUnheard,
            S::GrantUnheard,
            S::CommittedTwice,
            S::StoredAsStale,
        ],
        ..PLAIN
    },
    CacheSetup {
        name: "cache delayed command",
        clients: 2,
        in_flight: 1,
        faults: &[
            CacheFault::LateRequest,
            CacheFault::Twice,
            CacheFault::Invalidate,
        ],
        reaches: &[
            S::AppliedLate,
            S::CommittedTwice,
            S::LateKept,
            S::Overtaken,
            S::StoredAsStale,
        ],
        ..PLAIN
    },
    CacheSetup {
        name: "cache eviction",
        faults: &[
            CacheFault::LostControl,
            CacheFault::LostValue,
            CacheFault::Invalidate,
        ],
        reaches: &[
            S::ControlLost,
            S::ForgottenCommit,
            S::ValueLost,
            S::StoredAsStale,
        ],
        ..PLAIN
    },
    CacheSetup {
        name: "cache clock set back",
        faults: &[
            CacheFault::ClockBack,
            CacheFault::LostControl,
            CacheFault::LostValue,
            CacheFault::Invalidate,
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

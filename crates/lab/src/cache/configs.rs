//! The cache models, by name. Two models never differ in size only: [`Bounds`] chooses the size.

use super::setup::{CacheFault, CacheSetup, CacheSituation};
use crate::frame::{Bounds, setups};

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

const CI: &[CacheSetup] = setups! {
    CacheSetup, CacheFault, CacheSituation, PLAIN;

    "cache" { clients: 4 }
        may []
        reaches [Fresh, Busy, TwoWait, StaleServed, Woken, Renewed, TakenOver, LateKept, Overtaken];

    "cache invalidation" {}
        may [Invalidate]
        reaches [InvalidatedDuringLoad, StoredAsStale, TakenOver, Woken, LateKept, StaleServed];

    "cache early refresh" {}
        may [Refresh, Invalidate]
        reaches [RefreshedEarly, Busy, Overtaken, StoredAsStale];

    "cache failing source" {}
        may [Fail, Invalidate]
        reaches [BackOff, BackOffEnded, Woken, StaleServed];

    "cache crash" {}
        may [Crash]
        reaches [CrashedLoading, Busy, TwoWait, TakenOver];

    "cache lost reply" {}
        may [LostReply, Invalidate, Fail]
        reaches [CommitUnheard, GrantUnheard, CommittedTwice, StoredAsStale];

    "cache delayed command" { clients: 2, in_flight: 1 }
        may [LateRequest, Twice, Invalidate]
        reaches [AppliedLate, CommittedTwice, LateKept, Overtaken, StoredAsStale];

    "cache eviction" {}
        may [LostControl, LostValue, Invalidate]
        reaches [ControlLost, ForgottenCommit, ValueLost, StoredAsStale];

    "cache clock set back" {}
        may [ClockBack, LostControl, LostValue, Invalidate]
        reaches [ClockSetBack, ControlLost, UnknownCommit, StoredAhead, StoredAsStale, Overtaken];
};

//! The lock models, by name. Two models never differ in size only: [`Bounds`] chooses the size.

use super::setup::{Fault, Setup, Situation};
use crate::frame::{Bounds, setups};

/// The models within these bounds.
pub(super) fn all(bounds: Bounds) -> Vec<Setup> {
    bounds.of(CI, deeper)
}

/// A larger version: room for one more old owner; where it has that, one client more.
fn deeper(setup: &Setup) -> Setup {
    if setup.left_over == 0 {
        Setup {
            left_over: 1,
            ..*setup
        }
    } else {
        Setup {
            clients: setup.clients + 1,
            ..*setup
        }
    }
}

/// A model without faults other than pauses.
const PLAIN: Setup = Setup {
    name: "",
    clients: 3,
    ttl: 2,
    waits: true,
    in_flight: 1,
    left_over: 1,
    faults: &[],
    reaches: &[],
};

const CI: &[Setup] = setups! {
    Setup, Fault, Situation, PLAIN;

    "mutex" { waits: false, left_over: 0 }
        may [LateRequest, LateReply, LostReply]
        reaches [Busy, Renewed, Expired, DeadlinePassed, ReplyLost, ReplyTooLate, AppliedLate];

    "queue" {}
        may []
        reaches [Busy, QueueOfTwo, Granted, Claimed, SilentPassed];

    "grant and claim" { ttl: 1 }
        may [LateWake, Blocks]
        reaches [Granted, Claimed, HeldByWake, ClaimMissed, WakeLate, BlockDrawn, HandedOn];

    "lost wake" {}
        may [LateWake, LostWake]
        reaches [WakeLost, WakeLate, Claimed, HeldByWake, ClaimMissed];

    "lost reply" {}
        may [LostReply]
        reaches [ReplyLost, QueueOfTwo, Claimed];

    "delayed command" { ttl: 1, left_over: 0 }
        may [LateRequest, Twice]
        reaches [AppliedLate, AppliedTwice, ReplyTooLate, QueueOfTwo];

    "delayed answer" { ttl: 1, left_over: 0 }
        may [LateRequest, LateReply]
        reaches [AppliedLate, ReplyLost, ReplyTooLate, QueueOfTwo];

    "cancel" {}
        may [Cancel, LateWake]
        reaches [Cancelled, WakeUnwanted, QueueOfTwo];

    "crash" { left_over: 0 }
        may [Crash]
        reaches [CrashedHolding, CrashedWaiting, ClaimMissed, SilentPassed, Expired];

    "crash that the store sees" {}
        may [Crash, SeenCrash]
        reaches [CrashedHolding, CrashedWaiting, GonePassed];

    "connection cut while waiting" { ttl: 1, left_over: 0 }
        may [Away]
        reaches [GonePassed, CameBack, QueueOfTwo, Granted];

    "pause and expiry" { ttl: 3 }
        may []
        reaches [Expired, DeadlinePassed, ClaimMissed, Renewed, SilentPassed];

    "break" {}
        may [Break, Blocks]
        reaches [Broken, BreakTooLate, RobbedBelieves, BlockDrawn, HandedOn];

    "at least hold" {}
        may [Keep]
        reaches [Kept, Expired, QueueOfTwo, Granted];

    "foreign program" {}
        may [Foreign, Cancel]
        reaches [ForeignHeld, ForeignExpired, Granted, ToldFirst];

    "lost counter" {}
        may [LostCounter, Flush, Blocks]
        reaches [CounterLost, Flushed, RobbedBelieves, BlockDrawn, HandedOn];

    "failover" { left_over: 0 }
        may [Failover]
        reaches [RolledBack, OtherGrant, RobbedBelieves, Granted];
};

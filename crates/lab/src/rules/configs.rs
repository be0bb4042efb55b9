//! The lock models, by name. Two models never differ in size only: [`Bounds`] chooses the size.

use super::setup::{Fault, Setup, Situation as S};
use crate::frame::Bounds;

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
    reaches: &[S::Busy],
};

const CI: &[Setup] = &[
    Setup {
        name: "mutex",
        waits: false,
        left_over: 0,
        faults: &[Fault::LateRequest, Fault::LateReply, Fault::LostReply],
        reaches: &[
            S::Busy,
            S::Renewed,
            S::Expired,
            S::DeadlinePassed,
            S::ReplyLost,
            S::ReplyTooLate,
            S::AppliedLate,
        ],
        ..PLAIN
    },
    Setup {
        name: "queue",
        reaches: &[
            S::Busy,
            S::QueueOfTwo,
            S::Granted,
            S::Claimed,
            S::SilentPassed,
        ],
        ..PLAIN
    },
    Setup {
        name: "grant and claim",
        ttl: 1,
        faults: &[Fault::LateWake, Fault::Blocks],
        reaches: &[
            S::Granted,
            S::Claimed,
            S::HeldByWake,
            S::ClaimMissed,
            S::WakeLate,
            S::BlockDrawn,
            S::HandedOn,
        ],
        ..PLAIN
    },
    Setup {
        name: "lost wake",
        faults: &[Fault::LateWake, Fault::LostWake],
        reaches: &[
            S::WakeLost,
            S::WakeLate,
            S::Claimed,
            S::HeldByWake,
            S::ClaimMissed,
        ],
        ..PLAIN
    },
    Setup {
        name: "lost reply",
        faults: &[Fault::LostReply],
        reaches: &[S::ReplyLost, S::QueueOfTwo, S::Claimed],
        ..PLAIN
    },
    Setup {
        name: "delayed command",
        ttl: 1,
        left_over: 0,
        faults: &[Fault::LateRequest, Fault::Twice],
        reaches: &[
            S::AppliedLate,
            S::AppliedTwice,
            S::ReplyTooLate,
            S::QueueOfTwo,
        ],
        ..PLAIN
    },
    Setup {
        name: "delayed answer",
        ttl: 1,
        left_over: 0,
        faults: &[Fault::LateRequest, Fault::LateReply],
        reaches: &[S::AppliedLate, S::ReplyLost, S::ReplyTooLate, S::QueueOfTwo],
        ..PLAIN
    },
    Setup {
        name: "cancel",
        faults: &[Fault::Cancel, Fault::LateWake],
        reaches: &[S::Cancelled, S::WakeUnwanted, S::QueueOfTwo],
        ..PLAIN
    },
    Setup {
        name: "crash",
        left_over: 0,
        faults: &[Fault::Crash],
        reaches: &[
            S::CrashedHolding,
            S::CrashedWaiting,
            S::ClaimMissed,
            S::SilentPassed,
            S::Expired,
        ],
        ..PLAIN
    },
    Setup {
        name: "crash that the store sees",
        faults: &[Fault::Crash, Fault::SeenCrash],
        reaches: &[S::CrashedHolding, S::CrashedWaiting, S::GonePassed],
        ..PLAIN
    },
    Setup {
        name: "connection cut while waiting",
        ttl: 1,
        left_over: 0,
        faults: &[Fault::Away],
        reaches: &[S::GonePassed, S::CameBack, S::QueueOfTwo, S::Granted],
        ..PLAIN
    },
    Setup {
        name: "pause and expiry",
        ttl: 3,
        reaches: &[
            S::Expired,
            S::DeadlinePassed,
            S::ClaimMissed,
            S::Renewed,
            S::SilentPassed,
        ],
        ..PLAIN
    },
    Setup {
        name: "break",
        faults: &[Fault::Break, Fault::Blocks],
        reaches: &[
            S::Broken,
            S::BreakTooLate,
            S::RobbedBelieves,
            S::BlockDrawn,
            S::HandedOn,
        ],
        ..PLAIN
    },
    Setup {
        name: "at least hold",
        faults: &[Fault::Keep],
        reaches: &[S::Kept, S::Expired, S::QueueOfTwo, S::Granted],
        ..PLAIN
    },
    Setup {
        name: "foreign program",
        faults: &[Fault::Foreign, Fault::Cancel],
        reaches: &[S::ForeignHeld, S::ForeignExpired, S::Granted, S::ToldFirst],
        ..PLAIN
    },
    Setup {
        name: "lost counter",
        faults: &[Fault::LostCounter, Fault::Flush, Fault::Blocks],
        reaches: &[
            S::CounterLost,
            S::Flushed,
            S::RobbedBelieves,
            S::BlockDrawn,
            S::HandedOn,
        ],
        ..PLAIN
    },
    Setup {
        name: "failover",
        left_over: 0,
        faults: &[Fault::Failover],
        reaches: &[S::RolledBack, S::OtherGrant, S::RobbedBelieves, S::Granted],
        ..PLAIN
    },
];

//! A user of a simulated client: it asks for locks, works under them, and goes away when it likes.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Label, LockName, Ttl};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::Error;
use crate::lease::hold::Hold;
use crate::lease::terms::Terms;
use crate::lease::waiter::{AcquireOutcome, AcquireRequest, WaitLimit};

const MS: Duration = Duration::from_millis(1);

/// What a user is at.
pub(super) enum Stage {
    /// It has nothing to do with locks, for now.
    Idle,
    /// It waits for a lock.
    Asks {
        id: u64,
        answer: oneshot::Receiver<AcquireOutcome>,
        waits: bool,
        leaves: bool,
    },
    /// It works under a lease.
    Works(Arc<Hold>),
    /// It renews by hand.
    Extends(Arc<Hold>, oneshot::Receiver<Result<(), Error>>),
    /// It waits for the verdict of a release.
    Ends(Arc<Hold>, oneshot::Receiver<Result<(), Error>>),
    /// It leaves the lock to whoever has its token, for so long, and waits until that is confirmed; or it failed, and is undone.
    Detaches(Arc<Hold>, Ttl, Option<oneshot::Receiver<Result<(), Error>>>),
    /// It has gone for good.
    Over,
}

pub(super) struct User {
    pub(super) name: LockName,
    pub(super) stage: Stage,
    /// How many locks it wants yet.
    pub(super) left: u32,
    /// When it has to be answered, if it does not wait for ever.
    pub(super) due: Option<Moment>,
    /// Until when the lock has to stay taken after its release.
    pub(super) keep: Option<Moment>,
    /// Counts its stages, so that a move planned for an earlier one is not made.
    pub(super) turn: u32,
}

/// How a user ends its work.
pub(super) enum End {
    Release,
    Keep(Ttl),
    Drop,
    Extend(Ttl),
    Detach(Ttl),
}

impl User {
    pub(super) fn new(name: LockName, left: u32) -> Self {
        Self {
            name,
            stage: Stage::Idle,
            left,
            due: None,
            keep: None,
            turn: 0,
        }
    }

    /// The lease that it uses.
    pub(super) fn hold(&self) -> Option<&Arc<Hold>> {
        match &self.stage {
            Stage::Works(hold) | Stage::Extends(hold, _) => Some(hold),
            Stage::Idle
            | Stage::Asks { .. }
            | Stage::Ends(..)
            | Stage::Detaches(..)
            | Stage::Over => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    pub(super) fn becomes(&mut self, stage: Stage) {
        self.turn += 1;
        self.stage = stage;
    }
}

fn ttl(time: Duration) -> Ttl {
    Ttl::new(time).unwrap()
}

/// What a user asks for.
pub(super) fn request(rng: &mut Rng, name: &LockName) -> AcquireRequest {
    let ttls = [MS * 500, MS * 2_000, MS * 5_000, MS * 10_000];
    let limit = match rng.u32(0..10) {
        0 | 1 => WaitLimit::Once,
        2 => WaitLimit::Within(MS * rng.u32(1..3_000)),
        _ => WaitLimit::Forever,
    };
    AcquireRequest {
        name: name.clone(),
        terms: Terms {
            ttl: ttl(ttls[rng.usize(0..ttls.len())]),
            note: Label::new("note", "").unwrap(),
        },
        auto_renew: rng.u32(0..5) > 0,
        max_hold: (rng.u32(0..10) == 0).then(|| MS * rng.u32(100..4_000)),
        linger: if rng.bool() { MS * 300 } else { Duration::ZERO },
        on_wait: None,
        limit,
    }
}

/// How long a user works, or waits before it goes away.
pub(super) fn while_(rng: &mut Rng) -> Duration {
    match rng.u32(0..10) {
        0..=5 => MS * rng.u32(0..20),
        6..=8 => MS * rng.u32(20..1_500),
        _ => MS * rng.u32(1_500..12_000),
    }
}

pub(super) fn end(rng: &mut Rng) -> End {
    match rng.u32(0..10) {
        0..=4 => End::Release,
        5 => End::Keep(ttl(MS * rng.u32(10..3_000))),
        6 => End::Extend(ttl(MS * rng.u32(1_000..8_000))),
        7 => End::Detach(ttl(MS * rng.u32(1_000..8_000))),
        _ => End::Drop,
    }
}

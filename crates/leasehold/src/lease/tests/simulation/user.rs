//! A user of a simulated client: it asks for locks, works under them, and leaves at random times.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Label, LockName, Mode, Slots, Ttl};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::Error;
use crate::lease::hold::Hold;
use crate::lease::terms::Terms;
use crate::lease::waiter::{AcquireOutcome, AcquireRequest, WaitLimit};

const MS: Duration = Duration::from_millis(1);

/// The current activity of a user.
pub(super) enum Stage {
    /// It has no lock and waits for none.
    Idle,
    /// It waits for a lock.
    Asks {
        id: u64,
        answer: oneshot::Receiver<AcquireOutcome>,
        waits: bool,
        leaves: bool,
        mode: Mode,
    },
    /// It works under a lease.
    Works(Arc<Hold>),
    /// It renews by hand.
    Extends(Arc<Hold>, oneshot::Receiver<Result<(), Error>>),
    /// It waits for the verdict of a release.
    Ends(Arc<Hold>, oneshot::Receiver<Result<(), Error>>),
    /// It detaches the lease for this time and waits for the confirmation. `None`: the detach failed, and the next move undoes it.
    Detaches(Arc<Hold>, Ttl, Option<oneshot::Receiver<Result<(), Error>>>),
    /// It has ended.
    Over,
}

pub(super) struct User {
    pub(super) name: LockName,
    pub(super) stage: Stage,
    /// How often it will still ask for its lock.
    pub(super) left: u32,
    /// When it must have its reply, unless it waits for ever.
    pub(super) due: Option<Moment>,
    /// Until when the lock must stay taken after its release.
    pub(super) keep: Option<Moment>,
    /// Counts its stages. A move that was planned for an earlier stage is not made.
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

/// The modes for which the users of a history ask. A generator of their own draws them, so a history of mutexes stays as it was.
pub(super) struct Kinds {
    rng: Rng,
    modes: Vec<Mode>,
}

impl Kinds {
    /// The kinds of the history of this seed: those of a read/write lock, of a semaphore, or all of them under one name.
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed.rotate_left(16));
        let slots = |number| Mode::Slot(Slots::new(number).unwrap());
        let (one, two, three, eight) = (slots(1), slots(2), slots(3), slots(8));
        let (alone, shared) = (Mode::Exclusive, Mode::Shared);
        let modes = match rng.u32(0..6) {
            0 => vec![shared],
            1 | 2 => vec![alone, shared, shared, shared],
            3 => vec![eight, eight, eight, eight, alone],
            4 => vec![one, two, three, three],
            _ => vec![alone, shared, shared, two, three],
        };
        Self { rng, modes }
    }

    /// Those of a read/write lock.
    pub(super) fn of_readers(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed.rotate_left(16)),
            modes: vec![Mode::Exclusive, Mode::Shared, Mode::Shared],
        }
    }

    pub(super) fn draw(&mut self) -> Mode {
        self.modes[self.rng.usize(0..self.modes.len())]
    }

    /// More users of a client: readers and permits are in use together.
    pub(super) fn more_users(&mut self, names: &[LockName]) -> Vec<User> {
        let rng = &mut self.rng;
        (0..rng.usize(0..4))
            .map(|_| {
                let name = &names[rng.usize(0..names.len())];
                User::new(name.clone(), rng.u32(1..4))
            })
            .collect()
    }
}

/// A random request of a user.
pub(super) fn request(rng: &mut Rng, name: &LockName, mode: Mode) -> AcquireRequest {
    let ttls = [MS * 500, MS * 2_000, MS * 5_000, MS * 10_000];
    let limit = match rng.u32(0..10) {
        0 | 1 => WaitLimit::Once,
        2 => WaitLimit::Within(MS * rng.u32(1..3_000)),
        _ => WaitLimit::Forever,
    };
    AcquireRequest {
        name: name.clone(),
        terms: Terms {
            // Slots are asked for together by those with equal terms.
            ttl: match (mode, rng.usize(0..ttls.len())) {
                (Mode::Slot(_), 1..) => ttl(ttls[1]),
                (_, at) => ttl(ttls[at]),
            },
            note: Label::new("note", "").unwrap(),
            mode,
        },
        auto_renew: rng.u32(0..5) > 0,
        max_hold: (rng.u32(0..10) == 0).then(|| MS * rng.u32(100..4_000)),
        linger: if rng.bool() { MS * 300 } else { Duration::ZERO },
        on_wait: None,
        limit,
    }
}

/// A random time for which a user works, or waits before it leaves.
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

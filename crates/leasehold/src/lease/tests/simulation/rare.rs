//! The rare choices of a history: hints that a client does not hear, renewals that leave late, answers and wakes that arrive late, and
//! the detours of a cluster.
//! A generator of their own draws them, so a history without them stays as it was.

use std::ops::Range;

use fastrand::Rng;

use super::sim::{MS, SECOND};
use super::user::Kinds;
use crate::store::Notice;

/// The most clients of a history.
const CLIENTS: usize = 3;

/// The hints of the server that a client does not hear.
#[derive(Clone, Default)]
struct Deaf {
    during: Range<u64>,
    to_wakes: bool,
    to_wanted: bool,
}

/// The choices of one history. The default is a history without any.
#[derive(Default)]
pub(super) struct Rare {
    rng: Rng,
    deaf: [Deaf; CLIENTS],
    has_stalls: bool,
    has_late_messages: bool,
    /// The generator of a history in a cluster.
    detours: Option<Rng>,
    /// Its users ask for other kinds than mutexes.
    pub(super) kinds: Option<Kinds>,
}

impl Rare {
    /// The choices of the history of this seed: half of the histories have none.
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed);
        let choice = rng.u32(0..8);
        let mut deaf: [Deaf; CLIENTS] = Default::default();
        if matches!(choice, 0 | 3) {
            deaf.fill_with(|| Deaf::random(&mut rng));
        }
        Self {
            deaf,
            has_stalls: matches!(choice, 1 | 3),
            has_late_messages: matches!(choice, 2 | 3),
            rng,
            // As often in each of the other histories.
            detours: (seed / 8)
                .is_multiple_of(4)
                .then(|| Rng::with_seed(seed.rotate_left(32))),
            kinds: None,
        }
    }

    /// The same choices in a history of readers, writers and slots.
    pub(super) fn with_kinds(self, seed: u64) -> Self {
        let kinds = Some(Kinds::of(seed));
        Self { kinds, ..self }
    }

    /// The same choices in a history of readers and writers.
    pub(super) fn with_readers(self, seed: u64) -> Self {
        let kinds = Some(Kinds::of_readers(seed));
        Self { kinds, ..self }
    }

    /// Whether this client hears a notice that the server sends it at `at`.
    pub(super) fn hears(&self, client: usize, at: u64, notice: &Notice) -> bool {
        let deaf = &self.deaf[client];
        let is_missed = match notice {
            Notice::Granted { .. } | Notice::First { .. } => deaf.to_wakes,
            Notice::Wanted { .. } => deaf.to_wanted,
            _ => false,
        };
        !(is_missed && deaf.during.contains(&at))
    }

    /// How long a client stands still after it has made a renewal, before it sends it: often until just after the deadline of the lease,
    /// which is `left` away. The second number says for how much longer its timers stand still, as those of another thread may.
    pub(super) fn stall(&mut self, left: u64) -> Option<(u64, u64)> {
        if !self.has_stalls || self.rng.u32(0..12) > 0 {
            return None;
        }
        let stall = if self.rng.bool() {
            left + self.rng.u64(0..5 * MS)
        } else {
            self.rng.u64(0..left * 2 + MS)
        };
        Some((stall, self.rng.u64(0..20 * MS)))
    }

    /// After a stall: whether the time limit of the request counts from the end of the stall. The client sends the request before it
    /// looks at the limit.
    pub(super) fn forgives_stall(&mut self) -> bool {
        self.rng.bool()
    }

    /// How soon after a timer of its client a user makes its move, if it makes it together with the timer.
    pub(super) fn meets_timer(&mut self) -> Option<u64> {
        (self.has_stalls && self.rng.u32(0..4) == 0).then(|| self.rng.u64(0..2))
    }

    /// How late the answer of an earlier connection arrives, often over the time of the next connection.
    pub(super) fn late_answer(&mut self) -> Option<u64> {
        (self.has_late_messages && self.rng.bool()).then(|| self.rng.u64(MS..400 * MS))
    }

    /// Whether a replica takes over while an answer is on its way, and whether it has all data.
    pub(super) fn takes_over(&mut self) -> Option<bool> {
        (self.has_late_messages && self.rng.u32(0..40) == 0).then(|| self.rng.bool())
    }

    /// How long a request is on its way from a node that does not execute it to one that may.
    pub(super) fn detour(&mut self) -> Option<u64> {
        let rng = self.detours.as_mut()?;
        if rng.u32(0..8) > 0 {
            return None;
        }
        Some(if rng.bool() {
            rng.u64(0..2 * MS)
        } else {
            rng.u64(0..200 * MS)
        })
    }

    /// How long a client of a cluster does not know that another node has its slots.
    pub(super) fn learns_after(&mut self) -> Option<u64> {
        let rng = self.detours.as_mut()?;
        Some(rng.u64(0..300 * MS))
    }

    /// How much later than others an answer departs.
    pub(super) fn slow_answer(&mut self) -> u64 {
        if self.has_late_messages && self.rng.u32(0..8) == 0 {
            self.rng.u64(0..300 * MS)
        } else {
            0
        }
    }

    /// How much later than others a notice arrives.
    pub(super) fn late_notice(&mut self) -> u64 {
        if self.has_late_messages && self.rng.u32(0..4) == 0 {
            self.rng.u64(0..3 * SECOND)
        } else {
            0
        }
    }
}

impl Deaf {
    /// For a whole history, for a while, or not at all.
    fn random(rng: &mut Rng) -> Self {
        let begin = rng.u64(0..10 * SECOND);
        let during = match rng.u32(0..3) {
            0 => 0..u64::MAX,
            1 => begin..begin + rng.u64(SECOND..20 * SECOND),
            _ => 0..0,
        };
        let (to_wakes, to_wanted) = [(true, true), (true, false), (false, true)][rng.usize(0..3)];
        Self {
            during,
            to_wakes,
            to_wanted,
        }
    }
}

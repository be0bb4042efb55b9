//! The protocol of clients that keep the deadline itself in the key: `SETNX key <now + timeout + 1>`, and whoever is
//! refused reads the deadline and takes over once it has passed. Must never read a clock, nor take a value for a time that
//! is none.
//!
//! Only these rules decide; the scripts under `lua/timestamp` do the same in Redis and are compared with them.
//!
//! # Invariants
//!
//! - **T1** A deadline that has not passed is overwritten or deleted only by whom it belongs to.
//! - **T2** The unit of time in which a deadline falls belongs to nobody: its holder stops before it begins, since there are
//!   clients that call `deadline <= now` passed, and nobody takes over before it has ended, since there are holders that
//!   count on `now <= deadline`.
//! - **T3** What is no time in this unit is never overwritten, deleted, or waited for as if it ended: a time in the other
//!   unit, a number that is none of our days, the token of another kind of lock, a key of another type.
//! - **T4** An extension or a release touches only a deadline that is the caller's and lies ahead by the server's clock.
//! - **T5** A deadline that is written lies further ahead, by the server's clock, than the TTL asked for, and by a second
//!   and two units at most.

use std::time::Duration;

use crate::foreign::{VALUE_SHOWN, shown};
use crate::time::Ttl;

/// What the deadlines of a lock are counted in, since 1970. All who share a key must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    /// As the protocol has it: a time has 10 or 11 digits.
    #[default]
    Seconds,
    /// A time has 13 or 14 digits.
    Millis,
}

impl Unit {
    /// One of it, in microseconds.
    pub const fn micros(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Millis => 1_000,
        }
    }

    /// The fewest digits that a time of our days has: the years 2001 to 5138 have these or one more, in either unit, so that no
    /// number is a time in both.
    const fn digits(self) -> usize {
        match self {
            Self::Seconds => 10,
            Self::Millis => 13,
        }
    }

    /// The deadline that a value stands for, as the greatest one that any client could read in it: a part of a unit counts as
    /// a whole one. `None` for what is no time in this unit (T3).
    pub fn read(self, value: &[u8]) -> Option<u64> {
        if value.len() > VALUE_SHOWN {
            return None;
        }
        let point = value.iter().position(|byte| *byte == b'.');
        let (whole, part) = match point {
            Some(point) => (&value[..point], &value[point + 1..]),
            None => (value, [].as_slice()),
        };
        let is_number = [whole, part].concat().iter().all(u8::is_ascii_digit);
        let has_digits = whole.len() == self.digits() || whole.len() == self.digits() + 1;
        if !is_number || !has_digits || whole[0] == b'0' || (point.is_some() && part.is_empty()) {
            return None;
        }
        let whole: u64 = std::str::from_utf8(whole).ok()?.parse().ok()?;
        Some(whole + u64::from(part.iter().any(|digit| *digit != b'0')))
    }

    /// The time at `micros` since 1970, in whole units that have passed.
    pub const fn at(self, micros: u64) -> u64 {
        micros / self.micros()
    }

    /// A duration in whole units, rounded up.
    pub fn whole(self, duration: Duration) -> u64 {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        micros.div_ceil(self.micros())
    }

    /// The deadline of a lock that is to last for `ttl` from `now`: `now + ttl + 1`, as all clients of the protocol have it.
    pub fn deadline(self, now: u64, ttl: Ttl) -> u64 {
        now + self.whole(ttl.get()) + 1
    }
}

/// Whether a lock with this deadline is still its holder's (T2).
pub const fn is_ahead(deadline: u64, now: u64) -> bool {
    deadline > now
}

/// Whether a lock with this deadline may be taken over (T2).
pub const fn has_passed(deadline: u64, now: u64) -> bool {
    deadline < now
}

/// What stands under a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Content {
    /// Nothing.
    #[default]
    Nothing,
    /// A string.
    Text(Vec<u8>),
    /// Something of another type, by the name that Redis has for it.
    Other(String),
}

impl Content {
    /// A deadline as it is written.
    pub fn of(deadline: u64) -> Self {
        Self::Text(deadline.to_string().into())
    }

    /// What is said of it to others: of a value that is longer than [`VALUE_SHOWN`], the beginning.
    #[must_use]
    pub fn shown(&self) -> Self {
        match self {
            Self::Text(value) => Self::Text(shown(value)),
            other => other.clone(),
        }
    }

    /// The deadline that stands there, if it is one.
    pub fn deadline(&self, unit: Unit) -> Option<u64> {
        match self {
            Self::Text(value) => unit.read(value),
            Self::Nothing | Self::Other(_) => None,
        }
    }
}

/// What a client asks of a key; each is taken at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take what is free, or what has passed.
    Acquire {
        /// How long to hold it.
        ttl: Ttl,
    },
    /// Hold it for longer.
    Extend {
        /// The deadline to write, by what the caller knows of the server's clock.
        to: u64,
        /// How long to hold it from now; `to` has to cover it.
        ttl: Ttl,
        /// Every deadline that may be the caller's: its last one, and those of extensions that were not answered.
        mine: Vec<u64>,
    },
    /// Give it back.
    Release {
        /// As for an extension.
        mine: Vec<u64>,
    },
}

/// What a step came to. `at_us` is the server's clock, in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The caller holds it, with this deadline under the key.
    #[allow(missing_docs, reason = "see above")]
    Held { deadline: u64, at_us: u64 },
    /// Somebody else does.
    #[allow(missing_docs, reason = "see above")]
    Busy { deadline: u64, at_us: u64 },
    /// What stands there is no time, and is left alone (T3).
    Foreign(Content),
    /// The extension does not fit the server's clock: nothing was done, ask again with another deadline (T5).
    #[allow(missing_docs, reason = "see above")]
    Again { at_us: u64 },
    /// The server's clock is so far off that nobody would take its time for one: nothing was done (T3).
    #[allow(missing_docs, reason = "see above")]
    BadClock { at_us: u64 },
    /// It is not the caller's any more: this stands there.
    #[allow(missing_docs, reason = "see above")]
    NotHeld { content: Content, at_us: u64 },
    /// It is free.
    Released,
}

/// Takes a step at `now_us`, the server's clock in microseconds since 1970.
pub fn apply(unit: Unit, now_us: u64, content: &mut Content, step: &Step) -> Reply {
    let (now, at_us) = (unit.at(now_us), now_us);
    let not_held = |content: &Content| Reply::NotHeld {
        content: content.shown(),
        at_us,
    };
    match step {
        Step::Acquire { ttl } => {
            match content.deadline(unit) {
                None if *content != Content::Nothing => return Reply::Foreign(content.shown()),
                Some(deadline) if !has_passed(deadline, now) => {
                    return Reply::Busy { deadline, at_us };
                }
                _ => {}
            }
            let (deadline, before) = (unit.deadline(now, *ttl), content.clone());
            *content = Content::of(deadline);
            if content.deadline(unit).is_none() {
                *content = before;
                return Reply::BadClock { at_us };
            }
            Reply::Held { deadline, at_us }
        }
        Step::Extend { to, ttl, mine } => {
            if !is_mine(unit, now, content, mine) {
                return not_held(content);
            }
            if !fits(unit, now, *to, *ttl) {
                return Reply::Again { at_us };
            }
            *content = Content::of(*to);
            Reply::Held {
                deadline: *to,
                at_us,
            }
        }
        Step::Release { mine } => {
            if !is_mine(unit, now, content, mine) {
                return not_held(content);
            }
            *content = Content::Nothing;
            Reply::Released
        }
    }
}

/// Whether what stands there is one of the caller's deadlines, as it was written, and lies ahead (T4).
pub fn is_mine(unit: Unit, now: u64, content: &Content, mine: &[u64]) -> bool {
    let ahead = |deadline| is_ahead(deadline, now);
    content.deadline(unit).is_some_and(ahead)
        && mine.iter().any(|mine| *content == Content::of(*mine))
}

/// Whether an extension to `to` covers `ttl`, and by no more than a second that the caller may be wrong about the server's
/// clock (T5).
pub fn fits(unit: Unit, now: u64, to: u64, ttl: Ttl) -> bool {
    let least = unit.deadline(now, ttl);
    (least..=least + 1_000_000 / unit.micros()).contains(&to)
}

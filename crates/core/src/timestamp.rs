//! The timestamp protocol: the key's value is the deadline. A client sends `SETNX key <now + timeout + 1>`; a client that is
//! refused reads the deadline and takes the lock over once it has passed.
//!
//! Only these rules decide; the scripts under `lua/timestamp` do the same in Redis and are compared with them.
//!
//! # Invariants
//!
//! - **T1** A deadline that has not passed is overwritten or deleted only by its holder.
//! - **T2** In the unit of time that contains the deadline, the lock has no holder and is not free. Its holder stops before
//!   that unit begins, since some clients treat `deadline <= now` as passed. Others take over only after it has ended, since
//!   some holders rely on `now <= deadline`.
//! - **T3** A value that is no time in this unit is never overwritten or deleted, and is not waited for as if it expired:
//!   a time in the other unit, a number outside the expected years, the token of another kind of lock, a key of another type.
//! - **T4** An extension or a release touches only a deadline of the caller that is still ahead by the server's clock.
//! - **T5** A written deadline is later, by the server's clock, than the requested TTL, by at most a second and two units.

use std::time::Duration;

use crate::owner::{VALUE_SHOWN, shown};
use crate::time::Ttl;

/// The unit of the deadlines of a lock, counted since 1970. All programs that share a key must use the same unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    /// Seconds, as in the original protocol: a time has 10 or 11 digits.
    #[default]
    Seconds,
    /// Milliseconds: a time has 13 or 14 digits.
    Millis,
}

impl Unit {
    /// The length of the unit, in microseconds.
    pub const fn micros(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Millis => 1_000,
        }
    }

    /// The fewest digits of a time in this unit. The years 2001 to 5138 have this many digits or one more, in either unit, so no
    /// number is a time in both.
    const fn digits(self) -> usize {
        match self {
            Self::Seconds => 10,
            Self::Millis => 13,
        }
    }

    /// The deadline in a value, rounded up to whole units: the latest deadline that any client could read in it. `None` for a
    /// value that is no time in this unit (T3).
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

    /// The time at `micros` since 1970, in completed units.
    pub const fn at(self, micros: u64) -> u64 {
        micros / self.micros()
    }

    /// A duration in whole units, rounded up.
    pub fn whole(self, duration: Duration) -> u64 {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        micros.div_ceil(self.micros())
    }

    /// The deadline of a lock that lasts for `ttl` from `now`: `now + ttl + 1`, as all clients of the protocol compute it.
    pub fn deadline(self, now: u64, ttl: Ttl) -> u64 {
        now + self.whole(ttl.get()) + 1
    }
}

/// Whether the holder of a lock with this deadline still holds it (T2).
pub const fn is_ahead(deadline: u64, now: u64) -> bool {
    deadline > now
}

/// Whether a lock with this deadline may be taken over (T2).
pub const fn has_passed(deadline: u64, now: u64) -> bool {
    deadline < now
}

/// The content of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Content {
    /// Nothing.
    #[default]
    Nothing,
    /// A string.
    Text(Vec<u8>),
    /// A value of another type, by its name in Redis.
    Other(String),
}

impl Content {
    /// A deadline as it is written.
    pub fn of(deadline: u64) -> Self {
        Self::Text(deadline.to_string().into())
    }

    /// The content as others are shown it: at most the first [`VALUE_SHOWN`] bytes of a value.
    #[must_use]
    pub fn shown(&self) -> Self {
        match self {
            Self::Text(value) => Self::Text(shown(value)),
            other => other.clone(),
        }
    }

    /// The deadline in this content, if it is one.
    pub fn deadline(&self, unit: Unit) -> Option<u64> {
        match self {
            Self::Text(value) => unit.read(value),
            Self::Nothing | Self::Other(_) => None,
        }
    }
}

/// An atomic step that a client asks of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take the lock if it is free or its deadline has passed.
    Acquire {
        /// How long to hold it.
        ttl: Ttl,
    },
    /// Hold it for longer.
    Extend {
        /// The deadline to write, from the caller's estimate of the server's clock.
        to: u64,
        /// How long to hold it from now; `to` has to cover it.
        ttl: Ttl,
        /// Every deadline that may be the caller's: its last one, and those of unanswered extensions.
        mine: Vec<u64>,
    },
    /// Free the lock.
    Release {
        /// Every deadline that may be the caller's, as for an extension.
        mine: Vec<u64>,
    },
}

/// The reply to a step. `at_us` is the server's clock, in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The caller holds it, with this deadline under the key.
    #[allow(missing_docs, reason = "see above")]
    Held { deadline: u64, at_us: u64 },
    /// Another client holds it.
    #[allow(missing_docs, reason = "see above")]
    Busy { deadline: u64, at_us: u64 },
    /// The content is no time, and is not touched (T3).
    Foreign(Content),
    /// The extension does not fit the server's clock: nothing changed; ask again with another deadline (T5).
    #[allow(missing_docs, reason = "see above")]
    Again { at_us: u64 },
    /// The server's clock is so far off that other clients would not accept its time: nothing changed (T3).
    #[allow(missing_docs, reason = "see above")]
    BadClock { at_us: u64 },
    /// The caller does not hold it any more; `content` is there now.
    #[allow(missing_docs, reason = "see above")]
    NotHeld { content: Content, at_us: u64 },
    /// The lock is free.
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

/// Whether the content is one of the caller's deadlines, digit for digit, and still ahead (T4).
pub fn is_mine(unit: Unit, now: u64, content: &Content, mine: &[u64]) -> bool {
    let ahead = |deadline| is_ahead(deadline, now);
    content.deadline(unit).is_some_and(ahead)
        && mine.iter().any(|mine| *content == Content::of(*mine))
}

/// Whether an extension to `to` covers `ttl`, and exceeds it by at most one second, the allowed error of the caller's
/// estimate of the server's clock (T5).
pub fn fits(unit: Unit, now: u64, to: u64, ttl: Ttl) -> bool {
    let least = unit.deadline(now, ttl);
    (least..=least + 1_000_000 / unit.micros()).contains(&to)
}

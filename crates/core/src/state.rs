//! The parts of a lock's state, and the kinds of lock. The state and its steps are in `lock.rs`.

use std::cmp::Reverse;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::fence::{Block, Fence, Fences};
use crate::invalid::Invalid;
use crate::owner::Owner;
use crate::time::{Now, Ttl};

/// A lease: held, or granted and not yet claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its owner.
    pub owner: Owner,
    /// The mode that was granted.
    pub mode: Mode,
    /// The fences that were drawn with the grant. Readers that hold together have the fence of the first of them.
    pub fences: Fences,
    /// The number of its slot, from 1 on, if its mode has slots.
    pub slot: Option<u16>,
    /// The number that a node of a quorum has voted for, if it is a reader's vote. The other readers have numbers of their own.
    pub vote: Option<Fence>,
    /// The last millisecond on the store's expiry clock at which it counts.
    pub expires_at_ms: u64,
    /// The owner has released it with a delay (at-least-hold), or detached it for another process. It outlives the owner's
    /// process, however often it is extended.
    pub kept: bool,
}

/// A queued request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Its owner.
    pub owner: Owner,
    /// The mode that it asks for.
    pub mode: Mode,
    /// The lease it wants.
    pub ttl: Ttl,
    /// How many fences it wants with the grant.
    pub block: Block,
    /// Whether its client is subscribed to wakes; if not, silence proves nothing.
    pub listening: bool,
    /// The last millisecond at which it counts as alive if it does not ask again.
    pub seen_until_ms: u64,
}

/// A lock that was taken by a program that does not speak this protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The Redis type of the key.
    pub kind: String,
    /// The value, if a string. Others see its first [`VALUE_SHOWN`](crate::VALUE_SHOWN) bytes only.
    pub value: Vec<u8>,
    /// When it expires; `None` means never: clients wait for it and do not take it.
    pub expires_at_ms: Option<u64>,
}

/// The mode of a request, which decides beside which holders it is admitted.
///
/// As text: `exclusive`, `shared`, or `slot/4` with the number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone: the mode of a mutex, and of the writer of a read/write lock.
    Exclusive,
    /// Beside other shared holders: the mode of a reader.
    Shared,
    /// In one of so many slots, each with one holder: the mode of a semaphore. The number is that of the request, so clients that
    /// disagree about it share the slots that all of them know.
    Slot(Slots),
}

/// The number of slots of a semaphore: 1 to 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(NonZeroU16);

impl Slots {
    /// The most slots.
    pub const MOST: u16 = 1_000;

    /// So many slots.
    ///
    /// # Errors
    /// For 0, and for more than [`Slots::MOST`].
    pub fn new(slots: u16) -> Result<Self, Invalid> {
        let slots_in_bounds = NonZeroU16::new(slots).filter(|slots| slots.get() <= Self::MOST);
        slots_in_bounds.map(Self).ok_or_else(|| {
            Invalid::new(
                "number of slots",
                &slots.to_string(),
                "must be from 1 to 1000",
            )
        })
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

/// How the text of a mode with slots begins.
const SLOT: &str = "slot/";

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slot(slots) => write!(f, "{SLOT}{}", slots.get()),
        }
    }
}

impl FromStr for Mode {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let slots = || {
            let slots = text.strip_prefix(SLOT)?.parse().ok()?;
            Slots::new(slots).ok().map(Self::Slot)
        };
        let mode = match text {
            "exclusive" => Some(Self::Exclusive),
            "shared" => Some(Self::Shared),
            // Each mode has one notation only.
            _ => slots().filter(|mode| mode.to_string() == text),
        };
        let why = "must be `exclusive`, `shared`, or `slot/` and the number of slots";
        mode.ok_or_else(|| Invalid::new("mode", text, why))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Mode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Mode {
    /// Whether a request of this mode may join these (unexpired) holders. A kind of lock is this predicate (C1).
    pub(crate) fn admits(self, holders: &[Holder]) -> bool {
        match self {
            Self::Exclusive => holders.is_empty(),
            Self::Shared => holders.iter().all(|holder| holder.mode == Self::Shared),
            Self::Slot(slots) => {
                holders.len() < usize::from(slots.get())
                    && holders.iter().all(|holder| holder.slot.is_some())
            }
        }
    }

    /// The holder, of these in the order of [`Holder::order`], whose end a refused request of this mode waits for: the next end of a
    /// slot, the last end of any other hold.
    pub(crate) fn waits_for<'a>(self, holders: &'a [&Holder]) -> Option<&'a Holder> {
        let next = |last: &&&Holder| matches!(self, Self::Slot(_)) && last.slot.is_some();
        let next = holders.last().filter(next);
        next.or(holders.first()).copied()
    }
}

impl Holder {
    /// Holders in the order in which others see them: the last to end first, and those with one end by their tokens.
    pub(crate) fn order(&self) -> impl Ord + '_ {
        (Reverse(self.expires_at_ms), self.owner.token())
    }

    /// Whether `owner` holds by this grant: its own, and of the fence that the owner knows, if any (C8).
    pub(crate) fn is(&self, owner: &Owner, fence: Option<Fence>) -> bool {
        self.owner == *owner && self.is_under(fence)
    }

    /// Whether `fence` belongs to this grant; true for `None`, which means that the owner knows none.
    pub(crate) fn is_under(&self, fence: Option<Fence>) -> bool {
        fence.is_none_or(|fence| match self.vote {
            Some(vote) => fence == vote,
            None => self.fences.contains(fence),
        })
    }

    /// The number by which others know the hold: that of its vote, or else the first of its fences.
    pub(crate) fn number(&self) -> Fence {
        self.vote.unwrap_or(self.fences.first)
    }
}

impl Waiter {
    /// Whether it is overdue by so much that it no longer counts as alive.
    pub(crate) fn is_silent(&self, now: Now) -> bool {
        self.seen_until_ms < now.millis()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;

    #[test]
    fn slots_have_bounds() {
        for bad in [0, 1_001, u16::MAX] {
            let refused = Slots::new(bad).unwrap_err().to_string();
            let says = [bad.to_string(), "from 1 to 1000".to_owned()];
            assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
        }
        for good in [1, 2, 1_000] {
            assert_eq!(Slots::new(good).unwrap().get(), good);
        }
        assert_eq!(Slots::MOST, 1_000);
    }

    #[test]
    fn each_mode_has_one_text() {
        let slots = |slots| Mode::Slot(Slots::new(slots).unwrap());
        for (mode, text) in [
            (Mode::Exclusive, "exclusive"),
            (Mode::Shared, "shared"),
            (slots(1), "slot/1"),
            (slots(4), "slot/4"),
            (slots(1_000), "slot/1000"),
        ] {
            assert_eq!(mode.to_string(), text);
            assert_eq!(text.parse(), Ok(mode));
        }
        for bad in [
            "",
            "Exclusive",
            "exclusive ",
            "shared/1",
            "slot",
            "slot/",
            "slot/0",
            "slot/04",
            "slot/+4",
            "slot/-4",
            "slot/ 4",
            "slot/4 ",
            "slot/1001",
            "slot/65536",
            "slot/x",
            "Slot/4",
            "4",
        ] {
            let refused = bad.parse::<Mode>().unwrap_err().to_string();
            assert!(refused.contains("`shared`, or `slot/` and"), "{refused}");
        }
    }
}

//! The parts of a lock's state, and the kinds of lock. The state and its steps are in `lock.rs`.

use crate::fence::{Block, Fence, Fences};
use crate::owner::Owner;
use crate::time::{Now, Ttl};

/// A lease: held, or granted and not yet claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its owner.
    pub owner: Owner,
    /// The mode that was granted.
    pub mode: Mode,
    /// The fences that were drawn with the grant.
    pub fences: Fences,
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

/// The mode of a request, which decides beside which holders it is admitted. A store matches every mode by name, so a mode
/// that it does not support is refused at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum Mode {
    /// Exclusive: the mode of a mutex. The only mode that has a fence.
    Exclusive,
}

impl Mode {
    /// Whether a request of this mode may join these (unexpired) holders. A kind of lock is this predicate.
    pub(crate) fn admits(self, holders: &[Holder]) -> bool {
        match self {
            // A mutex has one holder at a time (C1).
            Self::Exclusive => holders.is_empty(),
        }
    }
}

impl Holder {
    /// Whether `owner` holds by this grant: its own, and of the fence that the owner knows, if any (C8).
    pub(crate) fn is(&self, owner: &Owner, fence: Option<Fence>) -> bool {
        self.owner == *owner && self.is_under(fence)
    }

    /// Whether `fence` belongs to this grant; true for `None`, which means that the owner knows none.
    pub(crate) fn is_under(&self, fence: Option<Fence>) -> bool {
        fence.is_none_or(|fence| self.fences.contains(fence))
    }
}

impl Waiter {
    /// Whether it is overdue by so much that it no longer counts as alive.
    pub(crate) fn is_silent(&self, now: Now) -> bool {
        self.seen_until_ms < now.millis()
    }
}

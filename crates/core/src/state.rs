//! The state of one lock, the effect of time on it, and the kinds of lock. Granting is in `turn.rs`.

use std::collections::VecDeque;

use crate::fence::{Block, Fence, Fences};
use crate::owner::Owner;
use crate::time::{Now, Ttl};

/// All that a store keeps of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockState {
    /// The holders; at most one for a mutex (C1).
    pub holders: Vec<Holder>,
    /// Another program's lock under the same name. Stores without foreign clients leave it empty.
    pub foreign: Option<Foreign>,
    /// The waiters, first in line first (C4). No owner is both here and among the holders.
    pub queue: VecDeque<Waiter>,
}

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

impl LockState {
    /// Whether the state is empty.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.foreign.is_none() && self.queue.is_empty()
    }

    /// Drops what has expired, as Redis does without a request. Grants nothing.
    pub fn expire(&mut self, now: Now) {
        let ms = now.millis();
        self.holders.retain(|holder| holder.expires_at_ms >= ms);
        self.foreign
            .take_if(|foreign| foreign.expires_at_ms.is_some_and(|at| at < ms));
    }

    /// Drops the waiters of a free lock if all of them are silent, as the next step would. An abandoned queue has no next
    /// step.
    pub(crate) fn forget_silent(&mut self, now: Now) {
        let free = self.holders.is_empty() && self.foreign.is_none();
        if free && self.queue.iter().all(|waiter| waiter.is_silent(now)) {
            self.queue.clear();
        }
    }
}

impl Waiter {
    /// Whether it is overdue by so much that it no longer counts as alive.
    pub(crate) fn is_silent(&self, now: Now) -> bool {
        self.seen_until_ms < now.millis()
    }
}

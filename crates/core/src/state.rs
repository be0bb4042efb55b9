//! What is kept of one name, and what time alone does to it. Must never hand a lock over: that is `line.rs`.

use std::collections::VecDeque;

use crate::fence::{Block, Fence, Fences};
use crate::foreign::Foreign;
use crate::mode::Mode;
use crate::owner::Owner;
use crate::time::{Now, Ttl};

/// All that is known of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockState {
    /// Who holds the lock; at most one for a mutex (C1).
    pub holders: Vec<Holder>,
    /// Another program's lock under the same name. Stores without foreign clients leave it empty.
    pub foreign: Option<Foreign>,
    /// Who waits, first in line first (C4). No owner is both here and among the holders.
    pub queue: VecDeque<Waiter>,
}

/// A lease, held or granted and not yet claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Whose it is.
    pub owner: Owner,
    /// What was granted.
    pub mode: Mode,
    /// The fences that were drawn with the grant.
    pub fences: Fences,
    /// The last millisecond on the store's expiry clock at which it counts.
    pub expires_at_ms: u64,
    /// Its owner has let go of it for later (at-least-hold, or to be taken up by another process): it outlives the owner's
    /// process, however often it is extended.
    pub kept: bool,
}

/// A queued request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Whose it is.
    pub owner: Owner,
    /// What it asks for.
    pub mode: Mode,
    /// The lease it wants.
    pub ttl: Ttl,
    /// How many fences it wants with the grant.
    pub block: Block,
    /// Whether its client listens for wakes; if not, silence proves nothing.
    pub listening: bool,
    /// The last millisecond at which it counts as alive without being heard of.
    pub seen_until_ms: u64,
}

impl Holder {
    /// Whether it is `owner`, by a grant of the fence under which that owner believes to hold, if it knows one (C8).
    pub(crate) fn is(&self, owner: &Owner, fence: Option<Fence>) -> bool {
        self.owner == *owner && self.is_under(fence)
    }

    /// Whether `fence` is one of its own; `None` says that it is not known.
    pub(crate) fn is_under(&self, fence: Option<Fence>) -> bool {
        fence.is_none_or(|fence| self.fences.contains(fence))
    }
}

impl LockState {
    /// Whether nothing is left to keep.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.foreign.is_none() && self.queue.is_empty()
    }

    /// Drops what has expired, as time alone does it in Redis. Hands nothing over.
    pub fn expire(&mut self, now: Now) {
        let ms = now.millis();
        self.holders.retain(|holder| holder.expires_at_ms >= ms);
        self.foreign
            .take_if(|foreign| foreign.expires_at_ms.is_some_and(|at| at < ms));
    }

    /// Drops the waiters of a free lock if all of them are silent, as the next step would; a queue that everyone abandoned
    /// has no next step.
    pub(crate) fn forget_silent(&mut self, now: Now) {
        let free = self.holders.is_empty() && self.foreign.is_none();
        if free && self.queue.iter().all(|waiter| waiter.is_silent(now)) {
            self.queue.clear();
        }
    }
}

impl Waiter {
    /// Whether nothing was heard of it for so long that it does not count as alive.
    pub(crate) fn is_silent(&self, now: Now) -> bool {
        self.seen_until_ms < now.millis()
    }
}

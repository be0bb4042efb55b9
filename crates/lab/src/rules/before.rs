//! What a step is judged by: what there was before it and is kept after it, and who holds by which fences. Must never judge.

use leasehold_core::{
    Counter, Fence, Holder, LockName, LockState, Owner, Presence, Step, UNHEARD_GRACE, Waiter,
    World,
};

use super::state::{AcquisitionId, Span};
use super::time::NOW;

/// The locks and the counter of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept<'a> {
    pub(super) lock: &'a LockState,
    pub(super) counter: Counter,
}

impl<'a> Kept<'a> {
    pub(super) fn of(world: &'a World, name: &LockName, nothing: &'a LockState) -> Self {
        Self {
            lock: world.get(name).unwrap_or(nothing),
            counter: world.counter,
        }
    }
}

/// What there was before a step.
pub(super) struct Before<'a> {
    pub(super) lock: &'a LockState,
    pub(super) counter: Counter,
    pub(super) step: &'a Step,
    pub(super) presence: &'a dyn Presence,
    /// The highest fence ever issued; afterwards, too.
    pub(super) issued: u64,
}

impl Before<'_> {
    /// Whether a waiter has been silent, or its process is gone: it may lose its place.
    pub(super) fn is_dead(&self, waiter: &Waiter) -> bool {
        waiter.seen_until_ms < NOW.millis() || self.presence.holder_gone(&waiter.owner)
    }

    /// Whether it is granted the lock when it comes first: it is alive and can be told.
    pub(super) fn is_able(&self, waiter: &Waiter) -> bool {
        let unheard = waiter.listening && self.presence.waiter_gone(waiter);
        !(self.is_dead(waiter) || unheard)
    }

    /// Whether it may stand in line while those behind it are granted the lock: it cannot be told, and that not for long.
    pub(super) fn passes_over(&self, waiter: &Waiter) -> bool {
        let grace = u64::try_from(UNHEARD_GRACE.as_millis()).unwrap_or(u64::MAX);
        let is_brief = waiter.seen_until_ms <= NOW.millis().saturating_add(grace);
        !self.is_dead(waiter) && !self.is_able(waiter) && is_brief
    }
}

/// Whether this owner has the lock.
pub(super) fn holds(lock: &LockState, owner: &Owner) -> bool {
    lock.holders.iter().any(|holder| holder.owner == *owner)
}

/// Whether it is an owner's, by a grant of these fences, until then or longer.
pub(super) fn is_its_hold(
    holder: &Holder,
    (id, fences): (AcquisitionId, Span),
    until_ms: u64,
) -> bool {
    let has = |fence| holder.fences.contains(Fence::new(fence));
    let is_its = AcquisitionId::of(&holder.owner) == id && has(fences.first) && has(fences.last);
    is_its && holder.expires_at_ms >= until_ms
}

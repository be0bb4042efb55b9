//! The state before a step, for the judge: holders with their fences, and presence.

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

/// The state before a step.
pub(super) struct Before<'a> {
    pub(super) lock: &'a LockState,
    pub(super) counter: Counter,
    pub(super) step: &'a Step,
    pub(super) presence: &'a dyn Presence,
    /// The highest fence ever issued, before and after.
    pub(super) issued: u64,
}

impl Before<'_> {
    /// Whether a waiter may lose its place: it is silent, or its process is gone.
    pub(super) fn is_dead(&self, waiter: &Waiter) -> bool {
        waiter.seen_until_ms < NOW.millis() || self.presence.holder_gone(&waiter.owner)
    }

    /// Whether it is granted the lock when it comes first: it is alive and can be told.
    pub(super) fn is_able(&self, waiter: &Waiter) -> bool {
        let unheard = waiter.listening && self.presence.waiter_gone(waiter);
        !(self.is_dead(waiter) || unheard)
    }

    /// Whether it may be passed over: it cannot be told, and not for too long.
    pub(super) fn passes_over(&self, waiter: &Waiter) -> bool {
        let grace = u64::try_from(UNHEARD_GRACE.as_millis()).unwrap_or(u64::MAX);
        let is_brief = waiter.seen_until_ms <= NOW.millis().saturating_add(grace);
        !self.is_dead(waiter) && !self.is_able(waiter) && is_brief
    }
}

/// Whether this owner holds the lock.
pub(super) fn holds(lock: &LockState, owner: &Owner) -> bool {
    lock.holders.iter().any(|holder| holder.owner == *owner)
}

/// Whether an owner holds by a grant of these fences, until then or longer.
pub(super) fn is_its_hold(
    holder: &Holder,
    (id, fences): (AcquisitionId, Span),
    until_ms: u64,
) -> bool {
    let has = |fence| holder.fences.contains(Fence::new(fence));
    let is_its = AcquisitionId::of(&holder.owner) == id && has(fences.first) && has(fences.last);
    is_its && holder.expires_at_ms >= until_ms
}

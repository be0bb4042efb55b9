//! Queries on holders and waiters for the broken rules.

use crate::owner::Owner;
use crate::state::LockState;
use crate::step::Step;

/// Whether a broken exclusion lets this acquire through.
pub(super) fn overruns(step: &Step, before: &LockState) -> bool {
    matches!(step, Step::Acquire { owner, .. } if !holds(before, owner) && before.queue.is_empty())
}

/// Whether this owner holds the lock.
pub(super) fn holds(state: &LockState, owner: &Owner) -> bool {
    state.holders.iter().any(|holder| holder.owner == *owner)
}

/// Whether this owner is in the queue.
pub(super) fn waits(state: &LockState, owner: &Owner) -> bool {
    state.queue.iter().any(|waiter| waiter.owner == *owner)
}

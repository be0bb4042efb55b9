//! The knowledge of a store about crashed clients. An answer of "not known" counts as present.

use crate::owner::Owner;
use crate::state::Waiter;

/// A store's knowledge of which clients are gone. The rules ask it while the lock advances.
///
/// Both answers default to "not known", which is always safe: the deadline then decides.
pub trait Presence {
    /// True only if this owner's process is certainly gone. Then its lease is not waited out, and a waiter is not granted the
    /// lock. Only a store on one host can know.
    fn holder_gone(&self, _owner: &Owner) -> bool {
        false
    }

    /// True if this waiter cannot be told of a grant now: its client is gone, or is reconnecting. In Redis, `PUBSUB NUMSUB`
    /// counts the subscribers of its channel before anything is published.
    fn waiter_gone(&self, _waiter: &Waiter) -> bool {
        false
    }
}

/// A presence that knows nothing: no client counts as gone.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnknownPresence;

impl Presence for UnknownPresence {}

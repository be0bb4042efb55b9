//! What a store knows of crashed clients. Must never guess: "not known" counts as present.

use crate::owner::Owner;
use crate::state::Waiter;

/// A store's knowledge of who is gone for good, asked while the lock advances.
///
/// Both answers default to "not known", which is always safe: the deadline then decides.
pub trait Presence {
    /// The process of this holder is certainly gone, so that its lease need not be waited out; or of this waiter, so that
    /// it is not given one. Only a store on one host can know.
    fn holder_gone(&self, _owner: &Owner) -> bool {
        false
    }

    /// Nobody would hear now that this waiter was granted the lock: its client has gone, or is connecting anew. In Redis this
    /// is what `PUBSUB NUMSUB` counts on its channel, before anything is published there.
    fn waiter_gone(&self, _waiter: &Waiter) -> bool {
        false
    }
}

/// A presence that knows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnknownPresence;

impl Presence for UnknownPresence {}

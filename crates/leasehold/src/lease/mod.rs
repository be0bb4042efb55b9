//! Leases: from the first request for a lock to the confirmation of its release.

mod acquisition;
#[cfg(feature = "timestamp")]
mod beside;
mod detached;
mod effects;
mod engine;
mod handle;
mod hold;
mod identity;
mod keeper;
mod machine;
mod owners;
mod settle;
mod terms;
#[cfg(test)]
mod tests;
mod timers;
mod waiter;

#[cfg(feature = "timestamp")]
pub(crate) use self::beside::Kept;
pub use self::detached::{Detached, LeaseStatus};
pub(crate) use self::engine::{Engine, EngineConfig, EngineHandle, NoticeSink};
pub use self::handle::{Lease, LossWatch, Slot};
pub(crate) use self::handle::{Pending, done, unless_lost};
pub use self::hold::LeaseEnd;
#[cfg(feature = "timestamp")]
pub(crate) use self::hold::{Hold, NO_FENCE, Start};
pub(crate) use self::identity::Identity;
#[cfg(feature = "timestamp")]
pub(crate) use self::keeper::{ExtendReply, tell};
pub(crate) use self::terms::Terms;
#[cfg(feature = "timestamp")]
pub(crate) use self::terms::certain_until;
pub use self::waiter::WaitStatus;
pub(crate) use self::waiter::{AcquireRequest, OnWait, WaitLimit};

//! A held lock, from the first request to the last confirmation. Must never hand out a lease whose deadline has passed.

mod alarm;
mod asking;
#[cfg(feature = "timestamp")]
mod beside;
mod detached;
mod effects;
mod engine;
mod events;
mod handle;
mod hold;
mod identity;
mod indexed;
mod kept;
mod line;
mod lines;
mod machine;
mod pending;
mod renewal;
mod renewals;
mod run;
mod seat;
mod settle;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod terms;
#[cfg(test)]
mod tests;
mod timers;
mod watch;

#[cfg(feature = "timestamp")]
pub(crate) use self::beside::Doubtful;
pub use self::detached::{Detached, LeaseStatus};
pub(crate) use self::engine::{Engine, Plan, Wire};
pub use self::handle::Lease;
pub use self::hold::LeaseEnd;
pub(crate) use self::identity::Identity;
pub(crate) use self::pending::Pending;
pub use self::run::RunOutcome;
pub use self::seat::WaitStatus;
pub(crate) use self::seat::{OnWait, Request, WaitLimit};
pub(crate) use self::terms::Terms;
#[cfg(feature = "timestamp")]
pub(crate) use self::terms::certain_until;
pub use self::watch::LossWatch;

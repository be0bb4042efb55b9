//! `leasehold acquire`, `renew`, `release`, `check`: a lease that no process keeps, in the steps of a pipeline. Must never renew
//! by itself, say *held* of what the store did not confirm, or leave a lock behind whose token nobody learned.

mod acquire;
mod check;
mod lease;
mod release;
mod renew;

pub(crate) use self::acquire::{Acquire, acquire};
pub(crate) use self::check::{Check, check};
pub(crate) use self::release::{Release, release};
pub(crate) use self::renew::{Renew, renew};

//! `leasehold acquire`, `renew`, `release`, `check`: a lease that outlives its process and is identified by a
//! token, for the steps of a pipeline. Nothing renews it automatically.

mod acquire;
mod check;
mod lease;
mod release;
mod renew;

pub(crate) use self::acquire::{Acquire, acquire};
pub(crate) use self::check::{Check, check};
pub(crate) use self::release::{Release, release};
pub(crate) use self::renew::{Renew, renew};

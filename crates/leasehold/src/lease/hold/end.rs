//! The end of a lease.

use crate::error::Lost;

/// How a lease ended, as a [`LossWatch`](crate::LossWatch) sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// Its user released, dropped or detached it. Only [`Lease::release`](crate::Lease::release) says whether the store confirmed the
    /// release.
    Released,
    /// It was lost before that.
    Lost(Lost),
}

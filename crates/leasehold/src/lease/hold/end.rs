//! How a lease ended, for those who watch it.

use crate::error::Lost;

/// How a lease ended, as a [`LossWatch`](crate::LossWatch) sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// Its owner gave it back: released, dropped or detached it. Whether the store confirmed that, only
    /// [`Lease::release`](crate::Lease::release) says.
    Released,
    /// It was lost before that.
    Lost(Lost),
}

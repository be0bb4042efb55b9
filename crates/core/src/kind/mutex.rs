//! The mutex: one holder at a time (C1).

use crate::state::Holder;

/// An exclusive request is admitted when there is no holder.
pub(crate) fn admits(holders: &[Holder]) -> bool {
    holders.is_empty()
}

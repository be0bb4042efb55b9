//! The mutex: one holder at a time (C1). Must never admit beside anyone.

use crate::state::Holder;

/// An exclusive request is admitted when nobody holds.
pub(crate) fn admits(holders: &[Holder]) -> bool {
    holders.is_empty()
}

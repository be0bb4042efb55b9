//! The kinds of lock. A kind is a predicate without state: which request is admitted beside which holders.

mod mutex;

use crate::mode::Mode;
use crate::state::Holder;

impl Mode {
    /// Whether a request of this mode may join these (unexpired) holders.
    pub(crate) fn admits(self, holders: &[Holder]) -> bool {
        match self {
            Self::Exclusive => mutex::admits(holders),
        }
    }
}

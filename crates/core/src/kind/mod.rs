//! The kinds of lock. A kind is one predicate, who is admitted beside whom; it must never keep state of its own.

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

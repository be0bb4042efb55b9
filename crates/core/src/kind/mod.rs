//! The kinds of lock. A kind is one predicate, who is admitted beside whom; it must never keep state of its own.

mod mutex;

use crate::Holder;

/// What a request asks for, which decides beside whom it is admitted. A store names each mode that there is, so that one which it does
/// not know is refused when it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone: the mode of a mutex. The only mode that has a fence.
    Exclusive,
}

impl Mode {
    /// Whether a request of this mode may join these (unexpired) holders.
    pub(crate) fn admits(self, holders: &[Holder]) -> bool {
        match self {
            Self::Exclusive => mutex::admits(holders),
        }
    }
}

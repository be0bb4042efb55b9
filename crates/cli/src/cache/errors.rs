//! Error messages about cache values, which do not mention locks.

use leasehold_cache::Error;

use crate::exit::{CONFIG, Exit, LOCK_UNKNOWN, SOFTWARE};

/// The exit for an error of the library. Busy and failed loads get a longer message where they occur.
pub(super) fn refused(error: Error) -> Exit {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Store(store) => for_cache(leasehold::Error::Store(store).into()),
        Error::Value { .. } => Exit::saying(
            CONFIG,
            format!(
                "{error} (exit {CONFIG})\n    next    choose another key, or a separate --namespace for cache values"
            ),
        ),
        other => Exit::saying(SOFTWARE, format!("{other} (exit {SOFTWARE})")),
    }
}

/// Rewords a message that was written for locks.
pub(super) fn for_cache(exit: Exit) -> Exit {
    exit.reworded(LOCK_UNKNOWN, "The state of the value is not known.")
}

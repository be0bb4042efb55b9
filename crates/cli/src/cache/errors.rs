//! The words for an error of the library that concerns a value. Must never speak of a lock.

use leasehold::cache::Error;

use crate::exit::{CONFIG, Exit, LOCK_UNKNOWN, SOFTWARE};

/// An error of the library that is the same for every verb. Busy and failed loads are told with more words where they happen.
pub(super) fn refused(error: Error) -> Exit {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Store(store) => of_value(leasehold::Error::Store(store).into()),
        Error::Value { .. } => Exit::saying(
            CONFIG,
            format!(
                "{error} (exit {CONFIG})\n    next    choose another key, or a --namespace for what `leasehold cache` stores"
            ),
        ),
        other => Exit::saying(SOFTWARE, format!("{other} (exit {SOFTWARE})")),
    }
}

/// An error that was written for locks.
pub(super) fn of_value(exit: Exit) -> Exit {
    exit.reworded(
        LOCK_UNKNOWN,
        "Nothing is known of the value: the store did not say.",
    )
}

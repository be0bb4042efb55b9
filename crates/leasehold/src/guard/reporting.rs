//! Reports reads and invalidations to telemetry.

use std::fmt;

use leasehold_core::LockName;

use super::answer::{Origin, Refusal};
use crate::telemetry::{Read, Telemetry};

impl From<Origin> for Read {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Fresh => Self::Fresh,
            Origin::Stale => Self::Stale,
            Origin::Loaded => Self::Loaded,
            Origin::Waited => Self::Waited,
        }
    }
}

/// The telemetry outcome of a read without a value.
pub(super) fn of(refusal: &Refusal) -> Read {
    match refusal {
        Refusal::Store(_) => Read::Unavailable,
        Refusal::Busy(_) => Read::Busy,
        Refusal::Nothing => Read::Nothing,
        Refusal::Failed(..)
        | Refusal::Foreign(_)
        | Refusal::Unreadable
        | Refusal::Nested
        | Refusal::GaveUp => Read::Failed,
    }
}

/// Reports the result of an invalidation.
pub(super) fn invalidated(telemetry: &Telemetry, key: &LockName, result: &Result<(), Refusal>) {
    let why = result.as_ref().err().map(InvalidationError);
    let error = why.as_ref().map(|why| why as &dyn fmt::Display);
    telemetry.invalidated(key, error);
}

/// Why an invalidation is not certain.
struct InvalidationError<'a>(&'a Refusal);

impl fmt::Display for InvalidationError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Refusal::Store(error) => error.fmt(f),
            Refusal::Foreign(kind) => {
                write!(f, "something else stands under this key, of type {kind}")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

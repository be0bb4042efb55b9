//! What those who watch are told of reads and invalidations. Must never change an answer.

use std::fmt;

use leasehold_core::LockName;
use leasehold_core::cache::Value;

use super::{Guard, Inner, Origin, Refusal};
use crate::clock::Moment;
use crate::telemetry::{Held, Read, Reading};

impl Guard {
    /// The span of whoever calls.
    pub(crate) fn caller(&self) -> Held {
        self.0.engine.telemetry.caller()
    }
}

impl Inner {
    pub(super) fn reading(&self, key: &LockName, begun: Moment) -> Reading<'_> {
        self.engine.telemetry.read(key, &self.engine.clock, begun)
    }

    /// What is stored under `key`, and the store's time; nobody loads it.
    pub(crate) async fn find(&self, key: &LockName) -> Result<Option<(Value, u64)>, Refusal> {
        let reading = self.reading(key, self.engine.clock.now());
        let looked = self.look(std::slice::from_ref(key)).await;
        let found = looked.map(|looked| {
            let value = looked.values.into_iter().next().flatten();
            value.map(|value| (value, looked.now_ms))
        });
        reading.ended(match &found {
            Ok(Some((value, now_ms))) => Origin::from(value.header.standing(*now_ms)).into(),
            Ok(None) => Read::Nothing,
            Err(refusal) => of(refusal),
        });
        found
    }

    pub(super) fn tell_invalidated(&self, key: &LockName, result: &Result<(), Refusal>) {
        let why = result.as_ref().err().map(Why);
        let error = why.as_ref().map(|why| why as &dyn fmt::Display);
        self.engine.telemetry.invalidated(key, error);
    }
}

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

/// What a read is counted as that gets nothing.
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

/// Why an invalidation is not certain.
struct Why<'a>(&'a Refusal);

impl fmt::Display for Why<'_> {
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

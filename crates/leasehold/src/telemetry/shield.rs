//! How those who watch are called, and the form of what they are told. Must never let a panic of theirs out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tracing::Span;
use tracing::span::Id;

/// Under which name subscribers filter what this library says.
pub(super) const TARGET: &str = "leasehold";

/// Calls those who watch, whose panics are none of a lock's business.
pub(super) fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // Nothing of ours is half changed in there.
    catch_unwind(AssertUnwindSafe(call)).ok()
}

pub(super) fn id(span: Option<&Span>) -> Option<Id> {
    span.and_then(Span::id)
}

/// Milliseconds, as all spans and events tell time.
pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

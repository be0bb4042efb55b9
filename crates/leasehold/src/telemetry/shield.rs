//! Calls subscribers and contains their panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tracing::Span;
use tracing::span::Id;

/// The target that subscribers filter by.
pub(super) const TARGET: &str = "leasehold";

/// Calls a subscriber, and contains its panic.
pub(super) fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // No state of the client is changed inside.
    catch_unwind(AssertUnwindSafe(call)).ok()
}

pub(super) fn id(span: Option<&Span>) -> Option<Id> {
    span.and_then(Span::id)
}

/// Milliseconds, the unit of all spans and events.
pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

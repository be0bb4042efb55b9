//! The shield between the client and the subscribers and recorders of a program, which may panic.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::Span;

/// A span. Its drop may call the subscriber, whose panic is contained.
#[derive(Debug)]
pub(crate) struct ShieldedSpan(Span);

impl ShieldedSpan {
    pub(super) fn new(span: Span) -> Self {
        Self(span)
    }
}

impl Deref for ShieldedSpan {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.0
    }
}

impl Drop for ShieldedSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        shielded(|| drop(span));
    }
}

/// Calls a subscriber or a recorder, and contains its panic.
pub(crate) fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // No state of the client is changed inside.
    catch_unwind(AssertUnwindSafe(call)).ok()
}

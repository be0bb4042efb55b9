//! The terms of a request (TTL, note), and the deadline on which its client may rely, with the drift of clocks taken off.

use std::time::Duration;

use leasehold_core::{Label, Mode, Ttl};

use crate::clock::Moment;

/// The settings of a lease that the store knows. A lock is handed on without a request only to a request with equal terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) note: Label,
    pub(crate) mode: Mode,
}

/// The time of a grant.
#[derive(Clone, Copy)]
pub(super) struct Term {
    /// When the last request was sent to the server that granted it.
    pub(super) asked_at: Moment,
    /// Until when it may be relied on.
    pub(super) until: Moment,
    /// The duration of the grant.
    pub(super) lasts: Ttl,
}

/// How much earlier than the store a client ends a lease: 1 % of the TTL for clocks with different speeds, and 2 ms for the store's
/// rounding.
pub(super) fn drift(time: Duration) -> Duration {
    time / 100 + Duration::from_millis(2)
}

/// The deadline of a lease whose request was sent at `sent` (L1).
pub(crate) fn deadline(sent: Moment, ttl: Ttl) -> Moment {
    certain_until(sent, ttl.get())
}

/// The certain deadline of a lease that has `left` to go, by the store's answer to a request sent at `sent`.
pub(crate) fn certain_until(sent: Moment, left: Duration) -> Moment {
    sent.after(left.saturating_sub(drift(left)))
}

/// `left` rounded up to whole milliseconds and into the bounds of a TTL. `None` for zero.
pub(crate) fn rounded_up(left: Duration) -> Option<Ttl> {
    if left.is_zero() {
        return None;
    }
    let up = left.saturating_add(Duration::from_micros(999));
    Ttl::new(up.clamp(Ttl::MIN, Ttl::MAX)).ok()
}

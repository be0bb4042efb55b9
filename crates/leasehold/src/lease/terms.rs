//! The terms of a lease, and until when one is certain.

use std::time::Duration;

use leasehold_core::{Label, Ttl};

use crate::clock::Moment;

/// What the store knows of a lease. Only to a request of the same terms is a lock handed on without asking the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) note: Label,
}

/// For how long a grant counts.
#[derive(Clone, Copy)]
pub(super) struct Term {
    /// When the server was asked last that granted it.
    pub(super) asked_at: Moment,
    /// Until when it may be relied on.
    pub(super) until: Moment,
    /// What it was granted for.
    pub(super) lasts: Ttl,
}

/// How much sooner than the store a client lets go: 1 % of the TTL for clocks that run at different speeds, and 2 ms for
/// the store's rounding.
pub(super) fn drift(time: Duration) -> Duration {
    time / 100 + Duration::from_millis(2)
}

/// The deadline of a lease that was asked for at `sent` (L1).
pub(crate) fn deadline(sent: Moment, ttl: Ttl) -> Moment {
    certain_until(sent, ttl.get())
}

/// Until when a lease is certain of which the store, asked at `sent`, said that it has `left` to go.
pub(crate) fn certain_until(sent: Moment, left: Duration) -> Moment {
    sent.after(left.saturating_sub(drift(left)))
}

/// A time to keep a lock for that is no shorter than `left`, in whole milliseconds and within the bounds; nothing for none.
pub(crate) fn rounded_up(left: Duration) -> Option<Ttl> {
    if left.is_zero() {
        return None;
    }
    let up = left.saturating_add(Duration::from_micros(999));
    Ttl::new(up.clamp(Ttl::MIN, Ttl::MAX)).ok()
}

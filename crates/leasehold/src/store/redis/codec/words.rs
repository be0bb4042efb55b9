//! The keys and words that the scripts and this client share. Must never differ from what stands in `lua/` and `docs/reference/protocol.md`.

use leasehold_core::Mode;

/// What all fences are drawn from: the only key that stays when a lock is free.
pub(in crate::store::redis) const COUNTER: &str = "leasehold:fence";

/// Names worth showing to an operator.
pub(in crate::store::redis) const INDEX: &str = "leasehold:index";

/// What the key of a lock's queue ends with.
pub(in crate::store::redis) const QUEUE: &str = ":lh-queue";

/// What the key of its waiters' records ends with.
pub(in crate::store::redis) const WAITERS: &str = ":lh-waiters";

/// Says that nobody listens for wakes: a waiter only polls.
pub(in crate::store::redis) const POLL_ONLY: &str = "-";

/// A mode as scripts and records spell it.
pub(in crate::store::redis) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
    }
}

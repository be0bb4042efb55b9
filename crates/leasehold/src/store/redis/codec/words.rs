//! The keys and words that the scripts in `lua/` and this client share; `docs/reference/protocol.md` lists them.

use leasehold_core::Mode;

/// The counter of all fences. The only key that remains when a lock is free.
pub(in crate::store::redis) const COUNTER: &str = "leasehold:fence";

/// The index of names for operators.
pub(in crate::store::redis) const INDEX: &str = "leasehold:index";

/// The suffix of the key of a lock's queue.
pub(in crate::store::redis) const QUEUE: &str = ":lh-queue";

/// The suffix of the key of its waiters' records.
pub(in crate::store::redis) const WAITERS: &str = ":lh-waiters";

/// Stands for the channel of a client that is not subscribed: its waiters only poll.
pub(in crate::store::redis) const POLL_ONLY: &str = "-";

/// The name of a mode in scripts and records.
pub(in crate::store::redis) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
    }
}

//! The keys and words that the scripts in `lua/` and this client share; `docs/reference/protocol.md` lists them.

use leasehold_core::quorum::{QuorumTerms, bucket};
use leasehold_core::{LockName, Mode};

/// The counter of all fences. The only key that remains when a lock is free.
pub(in crate::store::redis) const COUNTER: &str = "leasehold:fence";

/// The mark of a node of a quorum.
pub(in crate::store::redis) const MARK: &str = "leasehold:quorum";

/// The length of the name of a server in a mark: the begin of its `run_id`, in hexadecimal digits.
pub(in crate::store::redis) const MARK_ID: usize = 16;

/// The key of the counter of a name's bucket. A client that counts another quorum finds no counter there.
pub(in crate::store::redis) fn counter_of(terms: QuorumTerms, name: &LockName) -> String {
    counter_in(terms, bucket(name))
}

/// The key of the counter of a bucket.
pub(in crate::store::redis) fn counter_in(terms: QuorumTerms, bucket: u16) -> String {
    let QuorumTerms { nodes, longest_ttl } = terms;
    format!("{MARK}:{nodes}:{}:{bucket}", longest_ttl.millis())
}

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

//! Events: the machine's input.

use std::sync::Arc;

use leasehold_core::{LockName, Owner, Ttl};

use super::effects::{To, Verdict};
use super::hold::Hold;
use super::queue::QueueEntry;
use super::renewal_entry::ExtendReply;
use super::settle::Settle;
use super::waiter::Waiter;
use crate::store::{Answer, Notice};

/// A lease that is given back.
pub(super) struct Release {
    pub(super) hold: Arc<Hold>,
    /// For how long it is to stay taken.
    pub(super) keep: Option<Ttl>,
    pub(super) verdict: Option<Verdict>,
    /// Whether the store tells, at present, that others wait. If not, they do.
    pub(super) tells_wanted: bool,
}

impl Release {
    /// Gives a lease back, if it was not given back before. Whether the store tells that others wait is asked at that moment.
    pub(super) fn once(
        hold: &Arc<Hold>,
        keep: Option<Ttl>,
        verdict: Option<Verdict>,
        tells_wanted: impl FnOnce() -> bool,
    ) -> Option<Self> {
        if hold.give_back() {
            return Some(Self {
                hold: hold.clone(),
                keep,
                verdict,
                tells_wanted: tells_wanted(),
            });
        }
        if let (Some(verdict), Some(lost)) = (verdict, hold.loss()) {
            // Closed meanwhile: the caller is told why, if it still listens.
            drop(verdict.send(Err(lost.into())));
        }
        None
    }
}

/// Something that has happened.
pub(super) enum Event {
    /// A request for a lock came in.
    Asked(LockName, QueueEntry<Waiter>),
    /// The request with this number went away.
    Left(LockName, u64),
    /// Its `on_wait` panicked, and is not called again.
    Deaf(LockName, u64),
    /// The store has answered.
    Answered(To, Answer),
    /// The store tells something without being asked.
    Noticed(Notice),
    /// A lease is renewed by hand, for so long from now on.
    Extended(Owner, Ttl, ExtendReply),
    /// A lease is given back.
    Released(Release),
    /// This is to be undone, whether it is to stay taken or not.
    Undone(Settle),
    /// It is time for the first of what is due.
    Passed,
    /// The client is being closed.
    Closed,
}

//! Events: the machine's input.

use std::sync::Arc;

use leasehold_core::{LockName, Owner, Ttl};

use super::effects::{ReleaseReply, To};
use super::hold::Hold;
use super::keeper::ExtendReply;
use super::settle::Settle;
use super::waiter::Waiter;
use crate::store::{Answer, Notice};

/// A lease that is given back.
pub(super) struct Release {
    pub(super) hold: Arc<Hold>,
    /// How long the lock stays taken.
    pub(super) keep: Option<Ttl>,
    pub(super) verdict: Option<ReleaseReply>,
    /// Whether the store currently notifies the client of waiters. If not, the client assumes that there are some.
    pub(super) tells_wanted: bool,
}

impl Release {
    /// Releases a lease, if it was not released before. `tells_wanted` is called at that moment.
    pub(super) fn once(
        hold: &Arc<Hold>,
        keep: Option<Ttl>,
        verdict: Option<ReleaseReply>,
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
            // The client was closed meanwhile: report the loss to the caller.
            drop(verdict.send(Err(lost.into())));
        }
        None
    }
}

/// An event.
pub(super) enum Event {
    /// A request for a lock came in.
    Asked(Waiter),
    /// The request with this number went away.
    Left(LockName, u64),
    /// Its `on_wait` panicked, and is not called again.
    Deaf(LockName, u64),
    /// The store has answered.
    Answered(To, Answer),
    /// The store sent a notice.
    Noticed(Notice),
    /// A caller renews a lease, for this TTL from now.
    Extended(Owner, Ttl, ExtendReply),
    /// A lease is given back.
    Released(Release),
    /// Undo the requests of an owner, whether its lock stays taken or not.
    Undone(Settle),
    /// The first timer is due.
    Passed,
    /// The client is being closed.
    Closed,
}

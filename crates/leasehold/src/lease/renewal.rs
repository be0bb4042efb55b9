//! One renewal under way, and the meaning of its answer.

use std::sync::Arc;

use leasehold_core::{LockName, Reply, Step, Ttl};

use super::hold::Hold;
use super::renewal_entry::{Confirmed, ExtendReply, RenewalEntry};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::store::Answer;

/// Why a renewal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RenewalCause {
    /// It is due.
    Due,
    /// A caller asked for it.
    Asked,
}

/// A renewal that is sent.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) hold: Arc<Hold>,
    /// When it was made, before it is sent.
    pub(super) sent: Moment,
    pub(super) ttl: Ttl,
    pub(super) why: RenewalCause,
    pub(super) callers: Vec<ExtendReply>,
}

impl Renewal {
    pub(super) fn step(&self) -> (LockName, Step) {
        let step = Step::Extend {
            owner: self.hold.owner.clone(),
            ttl: self.ttl,
            fence: Some(self.hold.grant),
        };
        (self.hold.name.clone(), step)
    }
}

/// The trusted part of an answer to a renewal. If the old server has confirmed the lease, the new server may not have it (L4).
pub(super) fn believed(entry: Option<&RenewalEntry>, answer: Answer, store: &str) -> Answer {
    let asked_before = entry.is_some_and(|entry| entry.confirmed == Confirmed::AskedBefore);
    match answer {
        Ok(Reply::Held(_)) if asked_before => Err(StoreError::replaced_meanwhile(store)),
        answer => answer,
    }
}

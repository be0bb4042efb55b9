//! Doubt about a lease: a failed renewal, or a replaced server that has not confirmed the lease.

use leasehold_core::{CLAIM_WINDOW, Ttl};

use super::{Doubt, Hold, HoldState, LeaseState};
use crate::clock::Moment;
use crate::error::Replaced;

impl Hold {
    /// The server was replaced (L4).
    pub(crate) fn replaced(&self, how: Replaced) {
        self.doubt_because(how.to_string(), Some(how));
    }

    /// A renewal failed (L2).
    pub(crate) fn doubt(&self, reason: String) {
        self.doubt_because(reason, None);
    }

    fn doubt_because(&self, reason: String, replaced: Option<Replaced>) {
        let mut state = self.state();
        if matches!(state.standing, LeaseState::Lost(_)) {
            // The reported cause of a loss never changes (L3).
            return;
        }
        let before = state.doubt.take().and_then(|doubt| doubt.replaced);
        let replaced = replaced.or(before);
        state.doubt = Some(Doubt { reason, replaced });
    }

    /// Copies the doubt of the lease before this one.
    pub(crate) fn doubt_like(&self, before: &Self) {
        let doubt = before.state().doubt.clone();
        if let Some(Doubt { reason, replaced }) = doubt {
            self.doubt_because(reason, replaced);
        }
    }

    /// Why the last renewal failed, if it did, or how the server was replaced since.
    pub(crate) fn doubted(&self) -> Option<String> {
        match &*self.state() {
            HoldState {
                standing: LeaseState::Held,
                doubt: Some(doubt),
                ..
            } => Some(doubt.reason.clone()),
            _ => None,
        }
    }

    /// Whether the lock may be handed on in this client: enough of its time is certain, and the last renewal did not fail.
    pub(crate) fn is_fit_to_hand_on(&self, ttl: Ttl, now: Moment) -> bool {
        let certain = {
            let state = self.state();
            state.doubt.is_none() && !matches!(state.standing, LeaseState::Lost(_))
        };
        certain && self.deadline().since(now) > ttl.get().min(CLAIM_WINDOW) / 4
    }
}

//! The least time that a lock stays taken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::Ttl;

use super::{Hold, LeaseState};
use crate::clock::Moment;
use crate::error::LossCause;
use crate::lease::terms::rounded_up;

impl Hold {
    /// The lock stays taken for at least this time from the beginning of the lease. Called once the user has the lease.
    pub(crate) fn keep_at_least(&self, at_least: Duration) {
        let until = self.since.after(at_least);
        self.keep_until.store(until.as_micros(), Ordering::SeqCst);
    }

    /// For how much longer the lock has to stay taken if the lease ends at `now`. Nothing is kept of a lease that was lost,
    /// which may be another's by now; one that is closed is still this client's. A detached one has a time of its own.
    pub(crate) fn left_to_keep(&self, now: Moment) -> Option<Ttl> {
        let until = Moment::from_micros(self.keep_until.load(Ordering::SeqCst));
        let is_lost = match &self.state().standing {
            LeaseState::Lost(cause) => *cause != LossCause::Closed,
            LeaseState::Held | LeaseState::Retired => false,
        };
        if is_lost || self.is_detached() || self.valid_until() <= now {
            return None;
        }
        rounded_up(until.since(now))
    }
}

//! Leads that alone refuse a lock which a majority would grant.

use std::collections::HashMap;

use leasehold_core::{Busy, CLAIM_WINDOW, HolderIdentity, LockName};

use crate::clock::Moment;

/// The most names that are remembered.
const MOST: usize = 1_024;

/// The names whose lead alone refuses a lock that a majority would grant: the holder at the lead, and since when.
#[derive(Default)]
pub(super) struct Stuck(HashMap<String, (HolderIdentity, Moment)>);

impl Stuck {
    /// Whether the lead has refused for long enough for this holder. It then holds nothing, or the vote is stuck: its
    /// clock was set back, or a vote could not be given back.
    ///
    /// A foreign holder is in no queue, so it is not first in line: it passes if no waiter is.
    pub(super) fn is_stuck(&mut self, name: &LockName, refusal: &Busy, now: Moment) -> bool {
        let holder = &refusal.holder;
        let is_foreign = matches!(holder.who, HolderIdentity::Foreign { .. });
        if is_foreign && refusal.ahead == 0 {
            return true;
        }
        if let Some((who, since)) = self.0.get(name.key())
            && *who == holder.who
        {
            return now.since(*since) >= CLAIM_WINDOW;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let refusal = (holder.who.clone(), now);
        self.0.insert(name.key().to_owned(), refusal);
        false
    }

    /// The lead has not refused.
    pub(super) fn forget(&mut self, name: &LockName) {
        self.0.remove(name.key());
    }
}

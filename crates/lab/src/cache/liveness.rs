//! Liveness of one waiter: all other clients stop, it polls as told, and time passes by the millisecond. This is the worst case:
//! it receives no wake.

use leasehold_core::cache::Reply;

use super::model::CacheModel;
use super::state::{CachePhase, CacheState, Request};
use super::time::TICK_MS;
use crate::frame::{CallId, later, millis};

/// More polls than any bounded wait needs.
const POLLS: usize = 64;

impl CacheModel {
    /// K5: a waiter loads or has a fresh value at the latest one millisecond after the current lease and back-off end.
    pub(super) fn waits_end(&self, state: &CacheState) -> bool {
        (0u8..).zip(&state.clients).all(|(client, at)| {
            let CachePhase::Asking(seen) = at.phase else {
                return true;
            };
            let lease = state.books.lease.map(|(_, left)| left);
            let most = lease.max(state.books.rests);
            let most = most.map_or(0, |left| u64::from(left) * TICK_MS + 1);
            self.alone(state, state.id(client), seen)
                .is_some_and(|ms| ms <= most)
        })
    }

    /// After how many milliseconds of polling it loads or has a fresh value.
    fn alone(&self, state: &CacheState, id: CallId, seen: Option<u64>) -> Option<u64> {
        let step = self.asks(id, Request::Begin(seen));
        let mut entry = state.entry.clone();
        let mut ms = 0;
        for _ in 0..POLLS {
            let pause = match (self.subject.apply)(&mut entry, later(ms), &step).reply {
                Reply::Busy { poll_after, .. } => poll_after,
                Reply::BackOff { left, .. } => left,
                Reply::Load { .. } | Reply::Fresh(_) => return Some(ms),
                _ => return None,
            };
            ms += millis(pause);
        }
        None
    }
}

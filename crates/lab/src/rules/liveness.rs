//! Liveness of one waiter: all other clients stop, it polls as told, and time passes by the millisecond. This is the worst case:
//! it receives no wake, and the store does not know that any client is gone.

use leasehold_core::{Busy, CLAIM_WINDOW, Reply, UnknownPresence};

use super::model::LockModel;
use super::state::{Phase, RequestKind, State};
use super::time::TICK_MS;
use crate::frame::{CallId, later, millis};

/// More polls than any bounded wait needs.
const POLLS: usize = 256;

/// How a wait ended.
struct Waited {
    /// After how many milliseconds it held the lock, if ever.
    ms: Option<u64>,
    /// The first refusal, if there was one.
    first: Option<Busy>,
}

impl LockModel {
    /// R4: a waiter gets the lock once the current lease is over, plus one claim window for each waiter before it, plus the
    /// delay of its polls.
    pub(super) fn waits_end(&self, state: &State) -> bool {
        self.waiting(state).all(|id| {
            let Waited { ms, first } = self.alone(state, id);
            let Some(first) = first else {
                return ms.is_some();
            };
            // A foreign lock without a TTL has no bound.
            let Some(left) = first.holder.expires_in else {
                return true;
            };
            let left = millis(left);
            let ahead = u64::from(first.ahead);
            let late: u64 = (0..=ahead).map(late).sum();
            left <= self.subject.ttl.millis()
                && ms.is_some_and(|ms| ms <= left + ahead * self.claim_ms() + late)
        })
    }

    /// R5: if the granted waiter is silent, the next one has the lock when the claim window is over.
    pub(super) fn dead_grants_end(&self, state: &State) -> bool {
        let Some(age) = state.unclaimed else {
            return true;
        };
        let next = state.lock().and_then(|lock| lock.queue.front());
        let next = next.map(|waiter| CallId::of(&waiter.owner));
        let Some(next) = next.filter(|next| self.waiting(state).any(|id| id == *next)) else {
            return true;
        };
        let left = self.claim_ms().saturating_sub(u64::from(age) * TICK_MS);
        self.alone(state, next)
            .ms
            .is_some_and(|ms| ms <= left + late(0))
    }

    /// A client that wants the lock and polls.
    fn waiting(&self, state: &State) -> impl Iterator<Item = CallId> {
        let waits = self.setup.waits;
        let asks = |client: &u8| matches!(state.client(*client).phase, Phase::Asking(_));
        let clients = (0..self.setup.clients).filter(move |client| waits && asks(client));
        clients.map(|client| state.id(client))
    }

    fn alone(&self, state: &State, id: CallId) -> Waited {
        let mut waited = Waited {
            ms: None,
            first: None,
        };
        let step = self.asks(id, RequestKind::Wait, 0);
        let mut world = state.world.clone();
        let mut ms = 0;
        for _ in 0..POLLS {
            let reply = self
                .subject
                .execute(&mut world, later(ms), &step, &UnknownPresence);
            let Reply::Busy(busy) = reply.reply else {
                waited.ms = Some(ms);
                break;
            };
            // Clients add up to 10 % jitter to their polls, except the first in line.
            let pause = millis(busy.poll_after);
            ms += if busy.ahead == 0 {
                pause
            } else {
                pause + pause / 10
            };
            let never = busy.holder.expires_in.is_none();
            waited.first.get_or_insert(busy);
            if never {
                break;
            }
        }
        waited
    }

    fn claim_ms(&self) -> u64 {
        millis(CLAIM_WINDOW).min(self.subject.ttl.millis())
    }
}

/// How long after the end of a lease a waiter with so many before it polls: 10 ms later for each of them, and 10 % later than
/// told, which is at most one second times its place.
fn late(ahead: u64) -> u64 {
    let foreign = 50;
    let jitter = if ahead == 0 { 0 } else { (ahead + 1) * 100 };
    1 + foreign + 11 * ahead + jitter
}

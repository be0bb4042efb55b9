//! Timestamp locks of a client. They are not in the machine, so the engine notifies them when the server was replaced.

use std::sync::{Arc, PoisonError, Weak};

use crate::clock::Moment;
use crate::error::Replaced;
use crate::sync::{Mutex, MutexGuard};

/// A hold that a server has confirmed.
pub(crate) trait Doubtful: Send + Sync + 'static {
    /// The deadline of the hold.
    fn valid_until(&self) -> Moment;

    /// The server was replaced, as the client learns at `now`. The hold is doubtful, and the new server is asked at once. Must not block.
    fn replaced(&self, how: Replaced, now: Moment);
}

/// All such holds.
#[derive(Default)]
pub(crate) struct Beside(Mutex<OtherHolds>);

#[derive(Default)]
struct OtherHolds {
    held: Vec<Weak<dyn Doubtful>>,
    /// The last replacement of the server, and when the client learned of it.
    replaced: Option<(Moment, Replaced)>,
}

impl Beside {
    /// Adds a hold, for as long as it lives. The server was asked for it at `asked_at`.
    pub(crate) fn add<T: Doubtful>(&self, held: &Arc<T>, asked_at: Moment) {
        let replaced = {
            let mut state = self.lock();
            if state.held.len() == state.held.capacity() {
                state.held.retain(|held| held.strong_count() > 0);
                // Double the room, so most additions do not scan the others.
                let live = state.held.len();
                state.held.reserve(live + 1);
            }
            let held: Weak<T> = Arc::downgrade(held);
            state.held.push(held);
            state.replaced
        };
        if let Some((at, how)) = replaced
            && asked_at <= at
        {
            // The old server may have confirmed it.
            held.replaced(how, at);
        }
    }

    /// Notifies all holds, the one with the earliest deadline first.
    pub(super) fn replaced(&self, how: Replaced, now: Moment) {
        let mut held: Vec<Arc<dyn Doubtful>> = {
            let mut state = self.lock();
            state.replaced = Some((now, how));
            state.held.iter().filter_map(Weak::upgrade).collect()
        };
        held.sort_by_key(|held| held.valid_until());
        for held in held {
            held.replaced(how, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, OtherHolds> {
        // A change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Keepers of timestamp locks. They are not in the machine, so the engine notifies them when the server was replaced.

use std::sync::{Arc, PoisonError, Weak};

use tokio::sync::Notify;

use super::hold::Hold;
use super::keeper::Keeper;
use crate::clock::{Clock, Moment};
use crate::error::Replaced;
use crate::sync::{Mutex, MutexGuard};

/// The keeper of a lock that a task of its own renews.
pub(crate) struct Kept {
    keeper: Mutex<Keeper>,
    replaced: Notify,
}

impl Kept {
    pub(crate) fn keeper(&self) -> MutexGuard<'_, Keeper> {
        // The deadline ends the lock in any case.
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a renewal is due, or the deadline has passed.
    pub(crate) async fn due(&self, clock: &Clock) {
        loop {
            let now = clock.now();
            let at = self.keeper().next_event(now);
            if at <= now {
                return;
            }
            tokio::select! {
                () = clock.sleep_until(at) => {}
                () = self.replaced.notified() => {}
            }
        }
    }

    fn replaced(&self, how: Replaced, now: Moment) {
        let mut keeper = self.keeper();
        // The reported cause of a loss never changes (L3).
        if !keeper.hold.is_past() {
            keeper.replaced(how, now);
            self.replaced.notify_one();
        }
    }
}

/// All such keepers.
#[derive(Default)]
pub(crate) struct Beside(Mutex<Others>);

#[derive(Default)]
struct Others {
    kept: Vec<Weak<Kept>>,
    /// The last replacement of the server, and when the client learned of it.
    replaced: Option<(Moment, Replaced)>,
}

impl Beside {
    /// Adds the keeper of a lock that was granted just now, for as long as it lives.
    pub(crate) fn keep(&self, hold: &Arc<Hold>) -> Arc<Kept> {
        let kept = Arc::new(Kept {
            keeper: Mutex::new(Keeper::new(hold.clone(), hold.since)),
            replaced: Notify::new(),
        });
        let mut all = self.lock();
        if all.kept.len() == all.kept.capacity() {
            all.kept.retain(|kept| kept.strong_count() > 0);
            // Double the room, so most additions do not scan the others.
            let live = all.kept.len();
            all.kept.reserve(live + 1);
        }
        all.kept.push(Arc::downgrade(&kept));
        if let Some((at, how)) = all.replaced
            && hold.asked_at <= at
        {
            // The old server may have granted it (L4).
            kept.replaced(how, at);
        }
        drop(all);
        kept
    }

    /// Notifies all keepers, the one with the earliest deadline first.
    pub(super) fn replaced(&self, how: Replaced, now: Moment) {
        let mut all = self.lock();
        all.replaced = Some((now, how));
        let mut kept: Vec<_> = all.kept.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        kept.sort_by_cached_key(|kept| kept.keeper().hold.deadline());
        for kept in kept {
            kept.replaced(how, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Others> {
        // A change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

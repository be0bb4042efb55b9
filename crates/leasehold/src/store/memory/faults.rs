//! What goes wrong on the way to a store in memory, because a test says so. Must never change a request that was sent before it was
//! told.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::error::StoreErrorKind;
use crate::store::contract::{Listener, Notice};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum FaultMode {
    #[default]
    Open,
    /// Refused, nothing happened.
    Fails(StoreErrorKind),
    /// Neither carried out nor answered.
    Hangs,
    /// Carried out, not answered.
    LosesReplies,
    /// Carried out and answered this long after.
    Takes(Duration),
}

/// Goes wrong on purpose: the way from the clients of one [`Memory`](super::Memory) to what it holds. All of it works until told otherwise, and
/// what is told counts for the requests that are sent from then on. Clones are the same way.
///
/// While it [fails](Faults::fail), [hangs](Faults::hang) or [loses replies](Faults::lose_replies), those clients do not hear either that
/// it is their turn, or that others wait. The module `testing` has an example.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<FaultState>>);

#[derive(Default)]
struct FaultState {
    mode: FaultMode,
    /// Of the clients that use it.
    listeners: Vec<Weak<dyn Fn(Notice) + Send + Sync>>,
}

impl Faults {
    /// Each request is refused at once with an error of this kind, and nothing happens in the store.
    pub fn fail(&self, kind: StoreErrorKind) {
        self.lock().mode = FaultMode::Fails(kind);
    }

    /// Requests are neither carried out nor answered, as by a store that was stopped: each ends at its time limit with
    /// [`StoreErrorKind::TimedOut`], and its client cannot know that nothing happened.
    pub fn hang(&self) {
        self.lock().mode = FaultMode::Hangs;
    }

    /// Requests are carried out at once and not answered: each ends at its time limit with [`StoreErrorKind::TimedOut`].
    pub fn lose_replies(&self) {
        self.lock().mode = FaultMode::LosesReplies;
    }

    /// Each request is carried out, and answered, this long after it was sent. If that is longer than its time limit, it ends there
    /// with [`StoreErrorKind::TimedOut`], and is carried out all the same.
    pub fn slow(&self, delay: Duration) {
        self.lock().mode = FaultMode::Takes(delay);
    }

    /// All works again. Clients hear of it as of a new connection to a server: who waits asks again, and what could not be
    /// renewed is renewed. What hangs does so until its time limit.
    pub fn heal(&self) {
        let listeners: Vec<Listener> = {
            let mut state = self.lock();
            state.mode = FaultMode::Open;
            state
                .listeners
                .retain(|listener| listener.strong_count() > 0);
            state.listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            #[cfg(feature = "cache")]
            listener(Notice::Changed { keys: None });
            listener(Notice::Reconnected);
        }
    }

    pub(super) fn mode(&self) -> FaultMode {
        self.lock().mode
    }

    /// A listener that hears nothing while nothing gets through.
    pub(super) fn before(&self, listener: Listener) -> Listener {
        let mut state = self.lock();
        state
            .listeners
            .retain(|listener| listener.strong_count() > 0);
        state.listeners.push(Arc::downgrade(&listener));
        drop(state);
        let faults = self.clone();
        Arc::new(move |notice| {
            if matches!(faults.mode(), FaultMode::Open | FaultMode::Takes(_)) {
                listener(notice);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.mode()).finish()
    }
}

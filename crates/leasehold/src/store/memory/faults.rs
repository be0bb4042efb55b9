//! Faults that a test injects between clients and a store in memory. They do not affect requests that were sent before.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::error::StoreErrorKind;
use crate::store::contract::{Listener, Notice};

/// The fate of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum FaultMode {
    #[default]
    Open,
    /// Refused; nothing happened.
    Fails(StoreErrorKind),
    /// Neither executed nor answered.
    Hangs,
    /// Executed, but not answered.
    LosesReplies,
    /// Executed and answered after this delay.
    Takes(Duration),
}

/// Injects faults between the clients of one [`Memory`](super::Memory) and its locks.
///
/// Without faults, every request works. A fault applies to the requests that are sent from then on. Clones share their
/// faults.
///
/// While the store [fails](Faults::fail), [hangs](Faults::hang) or [loses replies](Faults::lose_replies), its clients
/// receive no notices either. The module `testing` has an example.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<FaultState>>);

#[derive(Default)]
struct FaultState {
    mode: FaultMode,
    /// The listeners of the clients with these faults.
    listeners: Vec<Weak<dyn Fn(Notice) + Send + Sync>>,
}

impl Faults {
    /// Each request is refused at once with an error of this kind. Nothing happens in the store.
    pub fn fail(&self, kind: StoreErrorKind) {
        self.lock().mode = FaultMode::Fails(kind);
    }

    /// Requests are neither executed nor answered, as if the store was stopped. Each ends at its time limit with
    /// [`StoreErrorKind::TimedOut`], and the client cannot know that nothing happened.
    pub fn hang(&self) {
        self.lock().mode = FaultMode::Hangs;
    }

    /// Requests are executed at once, but not answered. Each ends at its time limit with [`StoreErrorKind::TimedOut`].
    pub fn lose_replies(&self) {
        self.lock().mode = FaultMode::LosesReplies;
    }

    /// Each request is executed and answered after this delay. If the delay is longer than its time limit, the request
    /// ends with [`StoreErrorKind::TimedOut`] and is executed later all the same.
    pub fn slow(&self, delay: Duration) {
        self.lock().mode = FaultMode::Takes(delay);
    }

    /// Ends all faults. Clients react as to a new connection: waiters ask again, and failed renewals are retried.
    /// Requests that hang do so until their time limit.
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
            #[cfg(feature = "entries")]
            listener(Notice::Changed { keys: None });
            listener(Notice::Reconnected);
        }
    }

    pub(super) fn mode(&self) -> FaultMode {
        self.lock().mode
    }

    /// Wraps a listener. It receives nothing while requests or replies are lost.
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

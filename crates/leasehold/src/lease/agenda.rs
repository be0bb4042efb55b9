//! What is due when, for everything that waits for time to pass. Must never make a caller wake another thread without need.
//!
//! One task sleeps until the first thing is due. To add something that is due later than that wakes nobody, and after a
//! quiet moment the task still wakes once more before it sleeps for good: so a client that acquires and releases all the
//! time, each time adding and removing a renewal far ahead, never pays for a wake-up.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::sync::{Mutex, MutexGuard};

/// How long the task goes on waking up after the last thing was added.
const QUIET: Duration = Duration::from_secs(1);

/// Things of type `T`, each due at some moment.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    state: Mutex<State<T>>,
    bell: Notify,
}

#[derive(Debug)]
struct State<T> {
    due: BTreeMap<Ticket, T>,
    next_id: u64,
    /// When the task looks again by itself; `None` while it does not.
    looks_at: Option<Moment>,
    /// Something was added since it last looked.
    added: bool,
    closed: bool,
}

/// Where something stands in an [`Agenda`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    at: Moment,
    id: u64,
}

#[cfg(test)]
impl Ticket {
    pub(super) fn at(self) -> Moment {
        self.at
    }
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        let state = State {
            due: BTreeMap::new(),
            next_id: 0,
            looks_at: None,
            added: false,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            bell: Notify::new(),
        }
    }

    /// `what` is due at `at`.
    pub(super) fn add(&self, at: Moment, what: T) -> Ticket {
        let mut state = self.lock();
        let ticket = Ticket {
            at,
            id: state.next_id,
        };
        state.next_id += 1;
        state.added = true;
        state.due.insert(ticket, what);
        let too_late = state.looks_at.is_none_or(|looks_at| at < looks_at);
        if too_late {
            state.looks_at = Some(at);
            drop(state);
            self.bell.notify_one();
        }
        ticket
    }

    /// It is not due any more, if it still was.
    pub(super) fn remove(&self, ticket: Ticket) {
        self.lock().due.remove(&ticket);
    }

    /// Nothing more will be asked for.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_one();
    }

    /// Waits until something is due, which is taken out; `None` once it is closed.
    pub(super) async fn next(&self, clock: &Clock) -> Option<T> {
        loop {
            let looks_at = {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                let now = clock.now();
                let first = state.due.first_key_value().map(|(ticket, _)| ticket.at);
                if first.is_some_and(|at| at <= now) {
                    return state.due.pop_first().map(|(_, what)| what);
                }
                let active = std::mem::take(&mut state.added);
                state.looks_at = match first {
                    None => active.then(|| now.after(QUIET)),
                    first => first,
                };
                state.looks_at
            };
            tokio::select! {
                () = until(clock, looks_at) => {}
                () = self.bell.notified() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A map operation does not panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn until(clock: &Clock, at: Option<Moment>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn things_come_when_they_are_due_and_what_was_removed_does_not() {
        let clock = Clock::virtual_time();
        let begun = clock.now();
        let agenda = Arc::new(Agenda::new());
        let second = Duration::from_secs(1);
        agenda.add(begun.after(second * 3), "late");
        let gone = agenda.add(begun.after(second), "gone");
        agenda.remove(gone);
        let later = {
            let (agenda, clock) = (agenda.clone(), clock.clone());
            async move {
                clock.sleep(second / 2).await;
                agenda.add(begun.after(second), "soon");
            }
        };
        let (first, ()) = tokio::join!(agenda.next(&clock), later);
        assert_eq!((first, clock.now().since(begun)), (Some("soon"), second));
        assert_eq!(agenda.next(&clock).await, Some("late"));
        assert_eq!(clock.now().since(begun), second * 3);
        agenda.close();
        assert_eq!(agenda.next(&clock).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn adding_what_is_due_later_wakes_nobody() {
        let clock = Clock::virtual_time();
        let begun = clock.now();
        let agenda = Agenda::new();
        agenda.add(begun.after(QUIET), 1);
        assert!(agenda.bell.notified().now_or_never().is_some());
        for id in 2..100 {
            let ticket = agenda.add(begun.after(QUIET * 2), id);
            agenda.remove(ticket);
            assert!(agenda.bell.notified().now_or_never().is_none(), "{id}");
        }
    }

    use futures_util::FutureExt;
}

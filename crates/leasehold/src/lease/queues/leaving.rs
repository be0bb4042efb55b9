//! Requests that leave a queue without the lock: it is busy, the store fails, the client is closed, or the caller has gone.

use leasehold_core::{LockName, Owner};

use super::{Closed, LocalQueues};
use crate::lease::acquisition::Acquisition;
use crate::lease::queue::{
    Action, Actions, LocalQueue, QueueEntry, QueueState, Requester, take_once,
};

impl<C: Requester, T: Clone> LocalQueues<C, T> {
    /// The store says that the lock is busy. Refuses the entries that only try. Returns whether waiters are left. If not, the queue is
    /// removed, and its owner must leave the store's queue.
    pub(in crate::lease) fn busy(&mut self, name: &LockName) -> (Actions<C, T>, bool) {
        let Some(queue) = self.0.get_mut(name) else {
            return (Vec::new(), false);
        };
        let actions = take_once(&mut queue.waiting)
            .into_iter()
            .map(Action::Busy)
            .collect();
        (actions, self.goes_on(name))
    }

    /// Whether a queue has entries. An empty one is removed (Q5).
    fn goes_on(&mut self, name: &LockName) -> bool {
        let goes_on = (self.0.get(name)).is_some_and(|queue| !queue.waiting.is_empty());
        if !goes_on {
            self.0.remove(name);
        }
        goes_on
    }

    /// A request leaves. If no other one wants the lock, its acquisition ends and is returned.
    pub(in crate::lease) fn leave(
        &mut self,
        name: &LockName,
        id: u64,
    ) -> Option<(QueueEntry<C>, Option<Acquisition>)> {
        let queue = self.0.get_mut(name)?;
        let at = queue.waiting.iter().position(|entry| entry.id == id)?;
        let entry = queue.waiting.remove(at)?;
        let is_last = queue.waiting.is_empty() && matches!(queue.state, QueueState::Asking(_));
        let ended = if is_last { self.0.remove(name) } else { None };
        let acquisition = ended.and_then(|queue| match queue.state {
            QueueState::Asking(acquisition) => Some(acquisition),
            QueueState::Held(_) | QueueState::Idle(..) => None,
        });
        Some((entry, acquisition))
    }

    /// Ends a queue whose owner could not get the lock, and returns all its entries.
    pub(in crate::lease) fn fail(&mut self, name: &LockName, owner: &Owner) -> Vec<QueueEntry<C>> {
        let asks = |queue: &LocalQueue<C, T>| matches!(&queue.state, QueueState::Asking(acquisition) if acquisition.owner == *owner);
        if self.0.get(name).is_some_and(asks) {
            let queue = self.0.remove(name);
            queue.map_or_else(Vec::new, |queue| queue.waiting.into())
        } else {
            Vec::new()
        }
    }

    /// The store does not answer for now. Takes out the entries that only try. Returns whether waiters are left. If not, the queue is removed.
    pub(in crate::lease) fn failing(
        &mut self,
        name: &LockName,
        owner: &Owner,
    ) -> (Vec<QueueEntry<C>>, bool) {
        if self.acquisition(name, owner).is_none() {
            return (Vec::new(), false);
        }
        let queue = self.0.get_mut(name);
        let entries = queue.map_or_else(Vec::new, |queue| take_once(&mut queue.waiting));
        (entries, self.goes_on(name))
    }

    /// Ends all queues and returns their content.
    pub(in crate::lease) fn close(&mut self) -> Closed<C, T> {
        let mut closed = Closed {
            entries: Vec::new(),
            acquisition: Vec::new(),
            leases: Vec::new(),
        };
        for (name, queue) in self.0.drain() {
            closed.entries.extend(queue.waiting);
            match queue.state {
                QueueState::Asking(acquisition) => closed.acquisition.push((name, acquisition)),
                QueueState::Held(session) | QueueState::Idle(session, _) => {
                    closed.leases.push((name, session.owner, session.lease));
                }
            }
        }
        // In a deterministic order.
        closed.acquisition.sort_by(|(a, _), (b, _)| a.cmp(b));
        closed.leases.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        closed
    }
}

//! The local wait queues: the tasks of one client that want the same lock.
//!
//! Tasks are served in the order in which they came, and the store sees one owner at a time. Each call reports an event and returns
//! actions, so tests can try all orders of events without a store.
//!
//! # Invariants
//!
//! - **Q1** For each name at most one owner of this client asks for the lock or holds it through the queue.
//! - **Q2** While a queue has waiters, an owner asks the store or holds the lock, so no wake-up is lost.
//! - **Q3** Waiters are served in the order in which they came. Only waiters that have gone are skipped.
//! - **Q4** Each request is answered once, or leaves.
//! - **Q5** An empty queue is removed.
//! - **Q6** A lost lease does not delay the waiters of its queue, even if the queue learns of the loss last: the store decides.

mod leaving;
mod news;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use leasehold_core::{Fence, LockName, NoHandOver, Owner, Session};

use super::acquisition::Acquisition;
use super::queue::{
    Action, Actions, Ending, LocalQueue, OwnerSession, QueueEntry, QueueState, Requester,
    StoreGrant, ask, fences_for, next_entry, take_once,
};
use super::terms::Terms;
use crate::clock::Moment;

/// All queues of a client, by name. A lease is a `T`.
pub(super) struct LocalQueues<C, T>(HashMap<LockName, LocalQueue<C, T>>);

/// The content of all queues when they were closed.
pub(super) struct Closed<C, T> {
    /// The waiters.
    pub(super) entries: Vec<QueueEntry<C>>,
    /// The acquisitions under way.
    pub(super) acquisition: Vec<(LockName, Acquisition)>,
    /// The held and idle leases.
    pub(super) leases: Vec<(LockName, Owner, T)>,
}

impl<C, T> Default for LocalQueues<C, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Requester, T: Clone> LocalQueues<C, T> {
    /// A request comes in. It gets an idle lease if that `fits`; `make` makes the next lease from it.
    pub(super) fn enter(
        &mut self,
        name: &LockName,
        entry: QueueEntry<C>,
        owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
        fits: impl FnOnce(&T) -> bool,
        make: impl FnOnce(&QueueEntry<C>, &Owner, Fence, &T) -> T,
    ) -> Actions<C, T> {
        let Some(queue) = self.0.get_mut(name) else {
            let mut actions = Vec::with_capacity(1);
            let block = fences_for(&entry, &VecDeque::new(), None);
            let queue = LocalQueue {
                state: ask(owner(&entry.terms), &entry, block, now, &mut actions),
                waiting: VecDeque::from([entry]),
            };
            self.0.insert(name.clone(), queue);
            return actions;
        };
        let mut actions = Vec::new();
        match &mut queue.state {
            QueueState::Asking(acquisition) if entry.once && acquisition.is_busy() => {
                actions.push(Action::Busy(entry));
            }
            QueueState::Asking(acquisition)
                if let (true, Some(error)) = (entry.once, &acquisition.failure) =>
            {
                actions.push(Action::Fail(entry, error.clone()));
            }
            QueueState::Held(_) if entry.once => actions.push(Action::Busy(entry)),
            QueueState::Asking(_) | QueueState::Held(_) => {
                actions.push(Action::Waits(entry.id));
                queue.waiting.push_back(entry);
            }
            QueueState::Idle(session, _) => {
                let fits = entry.terms == session.terms && fits(&session.lease);
                let fence = if fits {
                    session.stay.hand_over(now.as_micros())
                } else {
                    Err(NoHandOver::Unfair)
                };
                let mut session = session.clone();
                match fence {
                    Ok(fence) => {
                        session.lease = make(&entry, &session.owner, fence, &session.lease);
                        session.grant(entry, true, &mut actions);
                        queue.state = QueueState::Held(session);
                    }
                    Err(NoHandOver::Spent | NoHandOver::Unfair) => {
                        actions.push(session.release());
                        let block = fences_for(&entry, &queue.waiting, Some(&session.stay));
                        queue.state = ask(owner(&entry.terms), &entry, block, now, &mut actions);
                        queue.waiting.push_back(entry);
                    }
                }
            }
        }
        actions
    }

    /// The store has granted the lock to `owner`; `make` makes the lease. The grant is undone if no entry wants it. `None` means that this
    /// queue did not ask for it.
    pub(super) fn taken(
        &mut self,
        name: &LockName,
        owner: &Owner,
        next_owner: impl FnOnce(&Terms) -> Owner,
        grant: StoreGrant,
        now: Moment,
        make: impl FnOnce(&QueueEntry<C>, &Acquisition) -> T,
    ) -> Option<Actions<C, T>> {
        let queue = self.0.get_mut(name)?;
        let QueueState::Asking(acquisition) = &mut queue.state else {
            return None;
        };
        if acquisition.owner != *owner {
            return None;
        }
        let mut actions = Vec::with_capacity(1);
        let entry = next_entry(&mut queue.waiting);
        match entry {
            Some(entry) if entry.terms == acquisition.terms => {
                let mut stay = Session::new(grant.fences);
                let queued = grant.queued.max(acquisition.wanted.into());
                stay.queued(queued, now.as_micros());
                let lease = make(&entry, acquisition);
                let session = OwnerSession {
                    owner: owner.clone(),
                    terms: acquisition.terms.clone(),
                    stay,
                    lease,
                    heard: acquisition.wanted.then_some(now),
                    looked_at: None,
                };
                session.grant(entry, false, &mut actions);
                for entry in take_once(&mut queue.waiting) {
                    actions.push(Action::Busy(entry));
                }
                queue.state = QueueState::Held(session);
            }
            entry => {
                actions.push(Action::Undo {
                    owner: owner.clone(),
                    ttl: acquisition.terms.ttl,
                    unsettled_until: acquisition.left.unsettled_until,
                });
                self.ask_next(name, entry, None, next_owner, now, &mut actions);
            }
        }
        Some(actions)
    }

    /// The lease of `owner` has ended. If the lock goes to the next entry, `make` makes its lease from this one.
    pub(super) fn give_back(
        &mut self,
        name: &LockName,
        owner: &Owner,
        next_owner: impl FnOnce(&Terms) -> Owner,
        ending: Ending,
        now: Moment,
        make: impl FnOnce(&QueueEntry<C>, &Owner, Fence, &T) -> T,
    ) -> Actions<C, T> {
        let mut actions = Vec::with_capacity(2);
        let Some(queue) = self.held_by(name, owner) else {
            // The lease was lost, and the queue has gone on without it.
            actions.push(Action::Release {
                owner: owner.clone(),
                lease: None,
            });
            return actions;
        };
        let mut entry = next_entry(&mut queue.waiting);
        let QueueState::Held(session) = &mut queue.state else {
            return actions;
        };
        if let Ending::HandOn { linger_until } = ending {
            if let Some(next) = entry.take_if(|next| next.terms == session.terms) {
                match session.stay.hand_over(now.as_micros()) {
                    Ok(fence) => {
                        session.lease = make(&next, owner, fence, &session.lease);
                        session.grant(next, true, &mut actions);
                        return actions;
                    }
                    Err(NoHandOver::Spent | NoHandOver::Unfair) => entry = Some(next),
                }
            } else if let (None, Some(until), false) =
                (&entry, linger_until, session.stay.is_wanted())
            {
                session.look(until, now, &mut actions);
                queue.state = QueueState::Idle(session.clone(), until);
                return actions;
            }
        }
        actions.push(session.release());
        let before = Some(session.stay.clone());
        self.ask_next(name, entry, before, next_owner, now, &mut actions);
        actions
    }

    /// All acquisitions.
    pub(super) fn all_acquisitions(
        &mut self,
    ) -> impl Iterator<Item = (&LockName, &mut Acquisition)> {
        self.0
            .iter_mut()
            .filter_map(|(name, queue)| match &mut queue.state {
                QueueState::Asking(acquisition) => Some((name, acquisition)),
                QueueState::Held(_) | QueueState::Idle(..) => None,
            })
    }

    /// The queue of this name.
    pub(super) fn get_mut(&mut self, name: &LockName) -> Option<&mut LocalQueue<C, T>> {
        self.0.get_mut(name)
    }

    /// The acquisition of this owner, if the queue still uses that owner.
    pub(super) fn acquisition(
        &mut self,
        name: &LockName,
        owner: &Owner,
    ) -> Option<&mut Acquisition> {
        match &mut self.0.get_mut(name)?.state {
            QueueState::Asking(acquisition) if acquisition.owner == *owner => Some(acquisition),
            _ => None,
        }
    }

    /// The queue whose lock `owner` holds.
    pub(super) fn owned_by(
        &mut self,
        name: &LockName,
        owner: &Owner,
    ) -> Option<&mut LocalQueue<C, T>> {
        let owns = |session: &OwnerSession<T>| session.owner == *owner;
        self.0.get_mut(name).filter(|queue| match &queue.state {
            QueueState::Held(session) | QueueState::Idle(session, _) => owns(session),
            QueueState::Asking(_) => false,
        })
    }

    /// Checks Q2, Q5 and Q6.
    /// (Q1 cannot be said otherwise.)
    #[cfg(test)]
    pub(super) fn check(&self, lost: impl Fn(&T) -> bool) {
        for queue in self.0.values() {
            match &queue.state {
                QueueState::Asking(_) => assert!(!queue.waiting.is_empty(), "asks for nobody"),
                QueueState::Held(session) => {
                    let waits = !queue.waiting.is_empty();
                    assert!(!(waits && lost(&session.lease)), "Q6: waits behind a loss");
                }
                QueueState::Idle(..) => assert!(queue.waiting.is_empty(), "idle, and waited for"),
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn held_by(&mut self, name: &LockName, owner: &Owner) -> Option<&mut LocalQueue<C, T>> {
        self.owned_by(name, owner)
            .filter(|queue| matches!(queue.state, QueueState::Held(_)))
    }

    /// This client does not hold the lock any more, after the stay if there was one. The store is asked on behalf of `entry`, taken out of
    /// the queue, or the queue ends (Q2, Q5).
    fn ask_next(
        &mut self,
        name: &LockName,
        entry: Option<QueueEntry<C>>,
        before: Option<Session>,
        owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
        actions: &mut Actions<C, T>,
    ) {
        match (entry, self.0.get_mut(name)) {
            (Some(entry), Some(queue)) => {
                let block = fences_for(&entry, &queue.waiting, before.as_ref());
                queue.state = ask(owner(&entry.terms), &entry, block, now, actions);
                queue.waiting.push_front(entry);
            }
            _ => drop(self.0.remove(name)),
        }
    }
}

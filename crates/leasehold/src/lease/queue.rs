//! The parts of a queue: who stands in it, whose turn it is, and what is to be done. `queues.rs` moves them.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::{Block, Owner, Session, Ttl, block_for};

use super::acquisition::{Acquisition, FirstRequest};
use super::terms::Terms;
use crate::clock::Moment;
use crate::error::StoreError;

/// How long an idle lock goes without a look at most.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Who waits for an answer.
pub(super) trait Requester {
    /// It does not listen any more.
    fn is_gone(&self) -> bool;

    /// Its lease may stay idle here, in case somebody wants it again.
    fn lingers(&self) -> bool;
}

/// A request in the queue.
pub(super) struct QueueEntry<C> {
    pub(super) id: u64,
    pub(super) terms: Terms,
    /// It does not wait for a busy lock.
    pub(super) once: bool,
    pub(super) caller: C,
}

pub(super) struct LocalQueue<C, T> {
    pub(super) state: QueueState<T>,
    pub(super) waiting: VecDeque<QueueEntry<C>>,
}

/// Whose turn it is.
#[allow(
    clippy::large_enum_variant,
    reason = "each acquisition begins with the large one; a queue is made once and stays where it is"
)]
pub(super) enum QueueState<T> {
    /// One owner asks the store, on behalf of all.
    Asking(Acquisition),
    /// A lease is out.
    Held(OwnerSession<T>),
    /// Nobody uses it, and until then it is kept in case somebody does.
    Idle(OwnerSession<T>, Moment),
}

/// A stay in the lock: one owner at the store, one lease after the other here.
pub(super) struct OwnerSession<T> {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) stay: Session,
    pub(super) lease: T,
    /// When it was last heard that others wait. An answer to what was asked before that does not know of them.
    pub(super) heard: Option<Moment>,
    /// When somebody is going to look whether it has been idle for too long.
    pub(super) looked_at: Option<Moment>,
}

/// How a lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The lock may go to the next one here, or stay idle until then.
    HandOn { linger_until: Option<Moment> },
    /// It has to go back to the store.
    GiveBack,
}

/// What is to be done.
pub(super) enum Action<C, T> {
    /// Ask the store.
    Ask(FirstRequest),
    /// The lease is this one's; if it was handed on, the store knows it by the owner it had.
    Grant {
        entry: QueueEntry<C>,
        lease: T,
        handed_on: bool,
    },
    /// Tell it that the lock is busy.
    Busy(QueueEntry<C>),
    /// Tell it that it has to wait here, behind so many others.
    Waits(u64),
    /// Tell it that the store does not answer.
    Fail(QueueEntry<C>, StoreError),
    /// The store gave the lock to this owner, and nobody here wants it.
    Undo {
        owner: Owner,
        ttl: Ttl,
        unsettled_until: Option<Moment>,
    },
    /// Give the lock of this owner back to the store.
    Release { owner: Owner, lease: Option<T> },
    /// Look at it then.
    Linger(Moment),
}

pub(super) type Actions<C, T> = Vec<Action<C, T>>;

impl<C, T> LocalQueue<C, T> {
    /// The lease that is out or idle.
    pub(super) fn lease(&self) -> Option<&T> {
        match &self.state {
            QueueState::Held(session) | QueueState::Idle(session, _) => Some(&session.lease),
            QueueState::Asking(_) => None,
        }
    }
}

impl<T: Clone> OwnerSession<T> {
    pub(super) fn release<C>(&self) -> Action<C, T> {
        Action::Release {
            owner: self.owner.clone(),
            lease: Some(self.lease.clone()),
        }
    }

    pub(super) fn grant<C>(
        &self,
        entry: QueueEntry<C>,
        handed_on: bool,
        actions: &mut Actions<C, T>,
    ) {
        actions.push(Action::Grant {
            entry,
            lease: self.lease.clone(),
            handed_on,
        });
    }

    /// It is idle until then: somebody has to look. Soon, at the latest, so that looks that come too late do not pile up.
    pub(super) fn look<C>(&mut self, until: Moment, now: Moment, actions: &mut Actions<C, T>) {
        let at = until.min(now.after(LOOK_WITHIN));
        if self.looked_at.is_none_or(|planned| planned > at) {
            self.looked_at = Some(at);
            actions.push(Action::Linger(at));
        }
    }
}

impl<T: Clone> Clone for OwnerSession<T> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner.clone(),
            terms: self.terms.clone(),
            stay: self.stay.clone(),
            lease: self.lease.clone(),
            heard: self.heard,
            looked_at: self.looked_at,
        }
    }
}

/// Fences for a lock that may stay idle and be taken again: more once these are used up.
const LINGERING: u64 = 4;

/// How many fences to draw for `seat`, before those who wait, after a stay of this client if there was one. Only to who wants
/// the same terms is the lock handed on.
pub(super) fn fences_for<C: Requester>(
    entry: &QueueEntry<C>,
    waiting: &VecDeque<QueueEntry<C>>,
    before: Option<&Session>,
) -> Block {
    let tasks = 1 + alike(waiting, &entry.terms);
    let wanted = before.map_or_else(|| block_for(tasks, false), |stay| stay.next_block(tasks));
    if entry.caller.lingers() && !before.is_some_and(Session::is_wanted) {
        wanted.max(Block::nearest(LINGERING))
    } else {
        wanted
    }
}

/// How many of those who wait, from the first on, want these terms: to them the lock may be handed on.
pub(super) fn alike<C>(waiting: &VecDeque<QueueEntry<C>>, terms: &Terms) -> usize {
    let most = usize::try_from(Block::MOST.get()).unwrap_or(usize::MAX);
    let alike = waiting.iter().take_while(|entry| entry.terms == *terms);
    alike.take(most).count()
}

/// Has the store asked on behalf of `seat`, for so many fences.
pub(super) fn ask<C, T>(
    owner: Owner,
    entry: &QueueEntry<C>,
    block: Block,
    now: Moment,
    actions: &mut Actions<C, T>,
) -> QueueState<T> {
    actions.push(Action::Ask(FirstRequest {
        owner: owner.clone(),
        terms: entry.terms.clone(),
        block,
        waits: !entry.once,
    }));
    QueueState::Asking(Acquisition::new(owner, entry.terms.clone(), now))
}

/// Takes out the first one that still listens (Q3).
pub(super) fn next_entry<C: Requester>(
    waiting: &mut VecDeque<QueueEntry<C>>,
) -> Option<QueueEntry<C>> {
    while let Some(entry) = waiting.pop_front() {
        if !entry.caller.is_gone() {
            return Some(entry);
        }
    }
    None
}

/// Takes out those who do not wait.
pub(super) fn take_once<C>(waiting: &mut VecDeque<QueueEntry<C>>) -> Vec<QueueEntry<C>> {
    if waiting.iter().all(|entry| !entry.once) {
        return Vec::new();
    }
    let (once, rest): (VecDeque<_>, _) = std::mem::take(waiting)
        .into_iter()
        .partition(|entry: &QueueEntry<C>| entry.once);
    *waiting = rest;
    once.into()
}

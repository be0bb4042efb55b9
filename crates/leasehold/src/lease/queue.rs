//! A local wait queue: its entries, its state and its actions. `queues.rs` drives it.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::{Block, Fences, Owner, Session, Ttl, block_for};

use super::acquisition::{Acquisition, FirstRequest};
use super::terms::Terms;
use crate::clock::Moment;
use crate::error::StoreError;

/// The longest time between two checks of an idle lock.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// The caller behind an entry.
pub(super) trait Requester {
    /// Whether the caller has gone.
    fn is_gone(&self) -> bool;

    /// Whether its lock may stay idle in this client after the release.
    fn lingers(&self) -> bool;
}

/// An entry of a queue: one request for the lock.
pub(super) struct QueueEntry<C> {
    pub(super) id: u64,
    pub(super) terms: Terms,
    /// Whether it only tries, and does not wait for a busy lock.
    pub(super) once: bool,
    pub(super) caller: C,
}

pub(super) struct LocalQueue<C, T> {
    pub(super) state: QueueState<T>,
    pub(super) waiting: VecDeque<QueueEntry<C>>,
}

/// The state of a queue.
#[allow(
    clippy::large_enum_variant,
    reason = "each acquisition begins with the large one; a queue is made once and stays where it is"
)]
pub(super) enum QueueState<T> {
    /// One owner acquires the lock from the store, on behalf of all entries.
    Asking(Acquisition),
    /// A lease is in use.
    Held(OwnerSession<T>),
    /// The lock is idle, and is kept until this moment in case a task wants it again.
    Idle(OwnerSession<T>, Moment),
}

/// One grant of the store: one owner there, and one lease after the other in this client (a stay).
pub(super) struct OwnerSession<T> {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) stay: Session,
    pub(super) lease: T,
    /// The last notice that other clients wait. An answer to an earlier request does not count them.
    pub(super) heard: Option<Moment>,
    /// When the next check for idleness is due.
    pub(super) looked_at: Option<Moment>,
}

/// What the store says with a grant.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreGrant {
    pub(super) fences: Fences,
    /// How many other clients wait.
    pub(super) queued: u32,
}

/// How a lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The lock may go to the next entry, or stay idle until this moment.
    HandOn { linger_until: Option<Moment> },
    /// It has to go back to the store.
    GiveBack,
}

/// An action for the machine.
pub(super) enum Action<C, T> {
    /// Ask the store.
    Ask(FirstRequest),
    /// Deliver the lease to this entry. If it was handed on, the store knows it by its previous owner.
    Grant {
        entry: QueueEntry<C>,
        lease: T,
        handed_on: bool,
    },
    /// Tell this entry that the lock is busy.
    Busy(QueueEntry<C>),
    /// Tell this entry that it has to wait.
    Waits(u64),
    /// Tell this entry that the store does not answer.
    Fail(QueueEntry<C>, StoreError),
    /// The store granted the lock to this owner, and no entry wants it.
    Undo {
        owner: Owner,
        ttl: Ttl,
        unsettled_until: Option<Moment>,
    },
    /// Give the lock of this owner back to the store.
    Release { owner: Owner, lease: Option<T> },
    /// Check the idle lock at this moment.
    Linger(Moment),
}

pub(super) type Actions<C, T> = Vec<Action<C, T>>;

impl<C, T> LocalQueue<C, T> {
    /// The held or idle lease.
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

    /// Plans the check of an idle lock: at `until`, or within [`LOOK_WITHIN`], so late checks do not pile up.
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

/// The first block of fences for a lock that may stay idle and be taken again.
const LINGERING: u64 = 4;

/// How many fences to request for `entry` and the waiters behind it, after the stay `before` if there was one. The lock is handed on only
/// to entries with equal terms.
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

/// The number of waiters at the head of the queue that want these terms. The lock may be handed on to them.
pub(super) fn alike<C>(waiting: &VecDeque<QueueEntry<C>>, terms: &Terms) -> usize {
    let most = usize::try_from(Block::MOST.get()).unwrap_or(usize::MAX);
    let alike = waiting.iter().take_while(|entry| entry.terms == *terms);
    alike.take(most).count()
}

/// Begins an acquisition on behalf of `entry`, with a block of fences.
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

/// Takes out the first entry whose caller has not gone (Q3).
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

/// Takes out the entries that only try.
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

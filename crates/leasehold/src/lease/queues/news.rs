//! Events of a held lock: it is lost, other clients want it, or it was idle for long enough.

use leasehold_core::{LockName, Owner};

use super::LocalQueues;
use crate::clock::Moment;
use crate::lease::queue::{Actions, LocalQueue, QueueState, Requester, next_entry};
use crate::lease::terms::Terms;

impl<C: Requester, T: Clone> LocalQueues<C, T> {
    /// The lease of `owner` was lost. The waiters do not wait until its user notices.
    pub(in crate::lease) fn lost(
        &mut self,
        name: &LockName,
        owner: &Owner,
        next_owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
    ) -> Actions<C, T> {
        let mut actions = Vec::new();
        if let Some(queue) = self.owned_by(name, owner) {
            match &queue.state {
                // An idle lease has no user that would release it.
                QueueState::Idle(session, _) => actions.push(session.release()),
                QueueState::Held(_) | QueueState::Asking(_) => {}
            }
            let entry = next_entry(&mut queue.waiting);
            self.ask_next(name, entry, None, next_owner, now, &mut actions);
        }
        actions
    }

    /// Ends the lease in use as [`LocalQueues::lost`] does, if it is seen to be `lost` (Q6).
    pub(in crate::lease) fn outlived(
        &mut self,
        name: &LockName,
        lost: impl FnOnce(&T) -> bool,
        next_owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
    ) -> Actions<C, T> {
        let owner = match self.get_mut(name).map(|queue| &queue.state) {
            Some(QueueState::Held(session)) if lost(&session.lease) => session.owner.clone(),
            _ => return Vec::new(),
        };
        self.lost(name, &owner, next_owner, now)
    }

    /// Another client waits for the lock of `owner`: an idle lease is released at once.
    pub(in crate::lease) fn wanted(
        &mut self,
        name: &LockName,
        owner: &Owner,
        now: Moment,
    ) -> Actions<C, T> {
        let mut actions = Vec::new();
        if let Some(acquisition) = self.acquisition(name, owner) {
            acquisition.wanted = true;
        } else if let Some(queue) = self.owned_by(name, owner) {
            match &mut queue.state {
                QueueState::Idle(session, _) => {
                    actions.push(session.release());
                    self.0.remove(name);
                }
                QueueState::Held(session) => {
                    session.heard = Some(now);
                    session.stay.queued(1, now.as_micros());
                }
                QueueState::Asking(_) => {}
            }
        }
        actions
    }

    /// An answer to the request of `sent` says how many other clients wait. "None" is outdated if a notice of a waiter came since.
    pub(in crate::lease) fn queued(
        &mut self,
        name: &LockName,
        owner: &Owner,
        queued: u32,
        sent: Moment,
        now: Moment,
    ) -> Actions<C, T> {
        if queued > 0 {
            return self.wanted(name, owner, now);
        }
        if let Some(LocalQueue {
            state: QueueState::Held(session),
            ..
        }) = self.owned_by(name, owner)
            && session.heard.is_none_or(|heard| heard < sent)
        {
            session.stay.queued(0, now.as_micros());
        }
        Vec::new()
    }

    /// Checks an idle lease: it is released if it has been idle for long enough at `now`.
    pub(in crate::lease) fn tidy(&mut self, name: &LockName, now: Moment) -> Actions<C, T> {
        let mut actions = Vec::new();
        match self.0.get_mut(name).map(|queue| &mut queue.state) {
            Some(QueueState::Idle(session, until)) if *until <= now => {
                actions.push(session.release());
                self.0.remove(name);
            }
            Some(QueueState::Idle(session, until)) => {
                session.looked_at.take_if(|at| *at <= now);
                session.look(*until, now, &mut actions);
            }
            Some(QueueState::Held(session)) => drop(session.looked_at.take_if(|at| *at <= now)),
            Some(QueueState::Asking(_)) | None => {}
        }
        actions
    }
}

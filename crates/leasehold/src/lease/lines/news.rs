//! What happens to a lock while this client has it: it is lost, others want it, it was idle for long enough. Must never leave a
//! lock that nobody here uses without somebody who gives it back.

use leasehold_core::{LockName, Owner};

use super::Lines;
use crate::clock::Moment;
use crate::lease::line::{Caller, Line, Todo, Turn, next_seat};
use crate::lease::terms::Terms;

impl<C: Caller, T: Clone> Lines<C, T> {
    /// The lease of `owner` was lost; whoever waits here does not wait for its user to notice.
    pub(in crate::lease) fn lost(
        &mut self,
        name: &LockName,
        owner: &Owner,
        next_owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
    ) -> Todo<C, T> {
        let mut todo = Vec::new();
        if let Some(line) = self.owned_by(name, owner) {
            match &line.turn {
                // No user of it will give it back.
                Turn::Idle(tenure, _) => todo.push(tenure.release()),
                Turn::Held(_) | Turn::Asking(_) => {}
            }
            let seat = next_seat(&mut line.waiting);
            self.ask_next(name, (seat, None), next_owner, now, &mut todo);
        }
        todo
    }

    /// The same, of whichever lease is out, if it is seen to be `lost` (Q6).
    pub(in crate::lease) fn outlived(
        &mut self,
        name: &LockName,
        lost: impl FnOnce(&T) -> bool,
        next_owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
    ) -> Todo<C, T> {
        let owner = match self.get_mut(name).map(|line| &line.turn) {
            Some(Turn::Held(tenure)) if lost(&tenure.lease) => tenure.owner.clone(),
            _ => return Vec::new(),
        };
        self.lost(name, &owner, next_owner, now)
    }

    /// Another client waits for what `owner` holds: an idle lease goes back at once.
    pub(in crate::lease) fn wanted(
        &mut self,
        name: &LockName,
        owner: &Owner,
        now: Moment,
    ) -> Todo<C, T> {
        let mut todo = Vec::new();
        if let Some(asking) = self.asking(name, owner) {
            asking.wanted = true;
        } else if let Some(line) = self.owned_by(name, owner) {
            match &mut line.turn {
                Turn::Idle(tenure, _) => {
                    todo.push(tenure.release());
                    self.0.remove(name);
                }
                Turn::Held(tenure) => {
                    tenure.heard = Some(now);
                    tenure.stay.queued(1, now.as_micros());
                }
                Turn::Asking(_) => {}
            }
        }
        todo
    }

    /// An answer to what was asked at `sent` says how many other clients wait. That nobody does is old news if it was heard
    /// since that somebody does.
    pub(in crate::lease) fn queued(
        &mut self,
        name: &LockName,
        owner: &Owner,
        (queued, sent): (u32, Moment),
        now: Moment,
    ) -> Todo<C, T> {
        if queued > 0 {
            return self.wanted(name, owner, now);
        }
        if let Some(Line {
            turn: Turn::Held(tenure),
            ..
        }) = self.owned_by(name, owner)
            && tenure.heard.is_none_or(|heard| heard < sent)
        {
            tenure.stay.queued(0, now.as_micros());
        }
        Vec::new()
    }

    /// An idle lease is to be looked at: it goes back if it has been idle for long enough at `now`.
    pub(in crate::lease) fn tidy(&mut self, name: &LockName, now: Moment) -> Todo<C, T> {
        let mut todo = Vec::new();
        match self.0.get_mut(name).map(|line| &mut line.turn) {
            Some(Turn::Idle(tenure, until)) if *until <= now => {
                todo.push(tenure.release());
                self.0.remove(name);
            }
            Some(Turn::Idle(tenure, until)) => {
                tenure.looked_at.take_if(|at| *at <= now);
                tenure.look(*until, now, &mut todo);
            }
            Some(Turn::Held(tenure)) => drop(tenure.looked_at.take_if(|at| *at <= now)),
            Some(Turn::Asking(_)) | None => {}
        }
        todo
    }
}

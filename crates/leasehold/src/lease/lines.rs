//! The tasks of one client that want the same lock. Must never do I/O, wait, or read a clock.
//!
//! They stand in line here, first come, first served, and the store sees one of them at a time. Each call says what has
//! happened and gives back what is to be done, so that every order of events can be tried out without a store.
//!
//! # Invariants
//!
//! - **Q1** For each name at most one owner of this client asks for the lock or holds it by way of the line.
//! - **Q2** Who waits in a line is waited for: somebody asks the store or holds the lock, so that no wake-up is lost.
//! - **Q3** Those who wait are served in the order they came; only who has gone is passed over.
//! - **Q4** Who came in is answered once, or leaves.
//! - **Q5** A line without anybody in it is not kept.
//! - **Q6** A lease that is seen to be lost is in nobody's way in a line, which may hear of that last: the store decides.

mod leaving;
mod news;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use leasehold_core::{Fence, Fences, LockName, NoHandOver, Owner, Session};

use super::asking::Asking;
use super::line::{
    Caller, Do, Ending, Line, Seat, Tenure, Todo, Turn, ask, fences_for, next_seat, take_once,
};
use super::terms::Terms;
use crate::clock::Moment;

/// All lines of a client, by name; a lease is a `T`.
pub(super) struct Lines<C, T>(HashMap<LockName, Line<C, T>>);

/// The content of all lines, as they were closed.
pub(super) struct Closed<C, T> {
    /// Those who waited.
    pub(super) seats: Vec<Seat<C>>,
    /// Those who asked the store.
    pub(super) asking: Vec<(LockName, Asking)>,
    /// The leases that were out or idle.
    pub(super) leases: Vec<(LockName, Owner, T)>,
}

impl<C, T> Default for Lines<C, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Caller, T: Clone> Lines<C, T> {
    /// A request comes in. An idle lease is taken if it `fits`, and `make` makes the next one from it.
    pub(super) fn enter(
        &mut self,
        name: &LockName,
        seat: Seat<C>,
        owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
        fits: impl FnOnce(&T) -> bool,
        make: impl FnOnce(&Seat<C>, &Owner, Fence, &T) -> T,
    ) -> Todo<C, T> {
        let Some(line) = self.0.get_mut(name) else {
            let mut todo = Vec::with_capacity(1);
            let block = fences_for(&seat, &VecDeque::new(), None);
            let line = Line {
                turn: ask(owner(&seat.terms), &seat, block, now, &mut todo),
                waiting: VecDeque::from([seat]),
            };
            self.0.insert(name.clone(), line);
            return todo;
        };
        let mut todo = Vec::new();
        match &mut line.turn {
            Turn::Asking(asking) if seat.once && asking.is_busy() => todo.push(Do::Busy(seat)),
            Turn::Asking(asking) if let (true, Some(error)) = (seat.once, &asking.failure) => {
                todo.push(Do::Fail(seat, error.clone()));
            }
            Turn::Held(_) if seat.once => todo.push(Do::Busy(seat)),
            Turn::Asking(_) | Turn::Held(_) => {
                todo.push(Do::Waits(seat.id));
                line.waiting.push_back(seat);
            }
            Turn::Idle(tenure, _) => {
                let fits = seat.terms == tenure.terms && fits(&tenure.lease);
                let fence = if fits {
                    tenure.stay.hand_over(now.as_micros())
                } else {
                    Err(NoHandOver::Unfair)
                };
                let mut tenure = tenure.clone();
                match fence {
                    Ok(fence) => {
                        tenure.lease = make(&seat, &tenure.owner, fence, &tenure.lease);
                        tenure.grant(seat, true, &mut todo);
                        line.turn = Turn::Held(tenure);
                    }
                    Err(NoHandOver::Spent | NoHandOver::Unfair) => {
                        todo.push(tenure.release());
                        let block = fences_for(&seat, &line.waiting, Some(&tenure.stay));
                        line.turn = ask(owner(&seat.terms), &seat, block, now, &mut todo);
                        line.waiting.push_back(seat);
                    }
                }
            }
        }
        todo
    }

    /// The store has given the lock to `owner`; `make` makes the lease of who gets it. The owner is given back if nobody
    /// wants it, and `None` says that this line did not ask for it.
    pub(super) fn taken(
        &mut self,
        name: &LockName,
        owner: &Owner,
        next_owner: impl FnOnce(&Terms) -> Owner,
        (fences, queued): (Fences, u32),
        now: Moment,
        make: impl FnOnce(&Seat<C>, &Asking) -> T,
    ) -> Option<Todo<C, T>> {
        let line = self.0.get_mut(name)?;
        let Turn::Asking(asking) = &mut line.turn else {
            return None;
        };
        if asking.owner != *owner {
            return None;
        }
        let mut todo = Vec::with_capacity(1);
        let seat = next_seat(&mut line.waiting);
        match seat {
            Some(seat) if seat.terms == asking.terms => {
                let mut stay = Session::new(fences);
                stay.queued(queued.max(asking.wanted.into()), now.as_micros());
                let lease = make(&seat, asking);
                let tenure = Tenure {
                    owner: owner.clone(),
                    terms: asking.terms.clone(),
                    stay,
                    lease,
                    heard: asking.wanted.then_some(now),
                    looked_at: None,
                };
                tenure.grant(seat, false, &mut todo);
                for seat in take_once(&mut line.waiting) {
                    todo.push(Do::Busy(seat));
                }
                line.turn = Turn::Held(tenure);
            }
            seat => {
                todo.push(Do::Undo {
                    owner: owner.clone(),
                    ttl: asking.terms.ttl,
                    unsettled_until: asking.left.unsettled_until,
                });
                self.ask_next(name, (seat, None), next_owner, now, &mut todo);
            }
        }
        Some(todo)
    }

    /// The lease of `owner` has ended. It goes to the next one here if it `fits`, and `make` makes the next one from it.
    pub(super) fn give_back(
        &mut self,
        name: &LockName,
        owner: &Owner,
        next_owner: impl FnOnce(&Terms) -> Owner,
        (ending, fits): (Ending, bool),
        now: Moment,
        make: impl FnOnce(&Seat<C>, &Owner, Fence, &T) -> T,
    ) -> Todo<C, T> {
        let mut todo = Vec::with_capacity(2);
        let Some(line) = self.held_by(name, owner) else {
            // It was lost, and others here have gone on without it.
            todo.push(Do::Release {
                owner: owner.clone(),
                lease: None,
            });
            return todo;
        };
        let mut seat = next_seat(&mut line.waiting);
        let Turn::Held(tenure) = &mut line.turn else {
            return todo;
        };
        if let (Ending::HandOn { linger_until }, true) = (ending, fits) {
            if let Some(next) = seat.take_if(|next| next.terms == tenure.terms) {
                match tenure.stay.hand_over(now.as_micros()) {
                    Ok(fence) => {
                        tenure.lease = make(&next, owner, fence, &tenure.lease);
                        tenure.grant(next, true, &mut todo);
                        return todo;
                    }
                    Err(NoHandOver::Spent | NoHandOver::Unfair) => seat = Some(next),
                }
            } else if let (None, Some(until), false) =
                (&seat, linger_until, tenure.stay.is_wanted())
            {
                tenure.look(until, now, &mut todo);
                line.turn = Turn::Idle(tenure.clone(), until);
                return todo;
            }
        }
        todo.push(tenure.release());
        let before = Some(tenure.stay.clone());
        self.ask_next(name, (seat, before), next_owner, now, &mut todo);
        todo
    }

    /// All who ask.
    pub(super) fn all_asking(&mut self) -> impl Iterator<Item = (&LockName, &mut Asking)> {
        self.0
            .iter_mut()
            .filter_map(|(name, line)| match &mut line.turn {
                Turn::Asking(asking) => Some((name, asking)),
                Turn::Held(_) | Turn::Idle(..) => None,
            })
    }

    /// The line of this name.
    pub(super) fn get_mut(&mut self, name: &LockName) -> Option<&mut Line<C, T>> {
        self.0.get_mut(name)
    }

    /// The asking of this owner, as long as the line stands by it.
    pub(super) fn asking(&mut self, name: &LockName, owner: &Owner) -> Option<&mut Asking> {
        match &mut self.0.get_mut(name)?.turn {
            Turn::Asking(asking) if asking.owner == *owner => Some(asking),
            _ => None,
        }
    }

    /// The line whose lock `owner` holds.
    pub(super) fn owned_by(&mut self, name: &LockName, owner: &Owner) -> Option<&mut Line<C, T>> {
        let owns = |tenure: &Tenure<T>| tenure.owner == *owner;
        self.0.get_mut(name).filter(|line| match &line.turn {
            Turn::Held(tenure) | Turn::Idle(tenure, _) => owns(tenure),
            Turn::Asking(_) => false,
        })
    }

    /// Whether Q2, Q5 and Q6 hold: who waits is waited for, and not behind a lease that is `lost`; and a line has somebody in it.
    /// (Q1 cannot be said otherwise.)
    #[cfg(test)]
    pub(super) fn check(&self, lost: impl Fn(&T) -> bool) {
        for line in self.0.values() {
            match &line.turn {
                Turn::Asking(_) => assert!(!line.waiting.is_empty(), "asks for nobody"),
                Turn::Held(tenure) => {
                    let waits = !line.waiting.is_empty();
                    assert!(!(waits && lost(&tenure.lease)), "Q6: waits behind a loss");
                }
                Turn::Idle(..) => assert!(line.waiting.is_empty(), "idle, and waited for"),
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn held_by(&mut self, name: &LockName, owner: &Owner) -> Option<&mut Line<C, T>> {
        self.owned_by(name, owner)
            .filter(|line| matches!(line.turn, Turn::Held(_)))
    }

    /// The lock is not ours any more, after this stay if there was one: `seat`, taken out of the line, has the store asked for
    /// it, or the line ends (Q2, Q5).
    fn ask_next(
        &mut self,
        name: &LockName,
        (seat, before): (Option<Seat<C>>, Option<Session>),
        owner: impl FnOnce(&Terms) -> Owner,
        now: Moment,
        todo: &mut Todo<C, T>,
    ) {
        match (seat, self.0.get_mut(name)) {
            (Some(seat), Some(line)) => {
                let block = fences_for(&seat, &line.waiting, before.as_ref());
                line.turn = ask(owner(&seat.terms), &seat, block, now, todo);
                line.waiting.push_front(seat);
            }
            _ => drop(self.0.remove(name)),
        }
    }
}

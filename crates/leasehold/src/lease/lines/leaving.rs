//! Who leaves a line without the lock: told that it is busy, that the store fails, that the client is closed; or gone by itself. Must
//! never leave a line that nobody stands in.

use leasehold_core::{LockName, Owner};

use super::{Closed, Lines};
use crate::lease::asking::Asking;
use crate::lease::line::{Caller, Do, Line, Seat, Todo, Turn, take_once};

impl<C: Caller, T: Clone> Lines<C, T> {
    /// The store says that the lock is busy. Who does not wait is told; and whether anybody is left
    /// who does. If not, the line is closed, and its owner must leave the store's queue.
    pub(in crate::lease) fn busy(&mut self, name: &LockName) -> (Todo<C, T>, bool) {
        let Some(line) = self.0.get_mut(name) else {
            return (Vec::new(), false);
        };
        let todo = take_once(&mut line.waiting)
            .into_iter()
            .map(Do::Busy)
            .collect();
        (todo, self.goes_on(name))
    }

    /// Whether anybody is left in a line, which ends if not (Q5).
    fn goes_on(&mut self, name: &LockName) -> bool {
        let goes_on = (self.0.get(name)).is_some_and(|line| !line.waiting.is_empty());
        if !goes_on {
            self.0.remove(name);
        }
        goes_on
    }

    /// A request goes away. If nobody else wants the lock, asking for it ends: with this asking.
    pub(in crate::lease) fn leave(
        &mut self,
        name: &LockName,
        id: u64,
    ) -> Option<(Seat<C>, Option<Asking>)> {
        let line = self.0.get_mut(name)?;
        let at = line.waiting.iter().position(|seat| seat.id == id)?;
        let seat = line.waiting.remove(at)?;
        let is_last = line.waiting.is_empty() && matches!(line.turn, Turn::Asking(_));
        let ended = if is_last { self.0.remove(name) } else { None };
        let asking = ended.and_then(|line| match line.turn {
            Turn::Asking(asking) => Some(asking),
            Turn::Held(_) | Turn::Idle(..) => None,
        });
        Some((seat, asking))
    }

    /// Ends a line whose owner could not get the lock: everyone in it.
    pub(in crate::lease) fn fail(&mut self, name: &LockName, owner: &Owner) -> Vec<Seat<C>> {
        let asks = |line: &Line<C, T>| matches!(&line.turn, Turn::Asking(asking) if asking.owner == *owner);
        if self.0.get(name).is_some_and(asks) {
            let line = self.0.remove(name);
            line.map_or_else(Vec::new, |line| line.waiting.into())
        } else {
            Vec::new()
        }
    }

    /// The store does not answer, for now: who does not wait is told, and whether anybody goes on. If not, the line is closed.
    pub(in crate::lease) fn failing(
        &mut self,
        name: &LockName,
        owner: &Owner,
    ) -> (Vec<Seat<C>>, bool) {
        if self.asking(name, owner).is_none() {
            return (Vec::new(), false);
        }
        let line = self.0.get_mut(name);
        let seats = line.map_or_else(Vec::new, |line| take_once(&mut line.waiting));
        (seats, self.goes_on(name))
    }

    /// Ends all lines.
    pub(in crate::lease) fn close(&mut self) -> Closed<C, T> {
        let mut closed = Closed {
            seats: Vec::new(),
            asking: Vec::new(),
            leases: Vec::new(),
        };
        for (name, line) in self.0.drain() {
            closed.seats.extend(line.waiting);
            match line.turn {
                Turn::Asking(asking) => closed.asking.push((name, asking)),
                Turn::Held(tenure) | Turn::Idle(tenure, _) => {
                    closed.leases.push((name, tenure.owner, tenure.lease));
                }
            }
        }
        // In an order that depends on nothing else.
        closed.asking.sort_by(|(a, _), (b, _)| a.cmp(b));
        closed.leases.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        closed
    }
}

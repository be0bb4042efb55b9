//! Timers, in the order of their times. They read no clock: each caller passes the time.

use std::collections::BTreeMap;

use crate::clock::Moment;

/// Things of type `T`, each due at some moment.
#[derive(Debug)]
pub(super) struct Timers<T> {
    due: BTreeMap<Ticket, T>,
    next_id: u64,
}

/// The handle of one of the [`Timers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    at: Moment,
    id: u64,
}

/// When the timers have to be checked next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextTimer {
    pub(super) at: Moment,
    /// Also a host that was suspended has to look in time.
    pub(super) is_precise: bool,
}

impl NextTimer {
    /// The sooner one of both, as precise as either.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            at: self.at.min(other.at),
            is_precise: self.is_precise || other.is_precise,
        }
    }
}

#[cfg(test)]
impl Ticket {
    pub(super) fn at(self) -> Moment {
        self.at
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            next_id: 0,
        }
    }
}

impl<T> Timers<T> {
    /// Adds a timer for `what` at `at`.
    pub(super) fn add(&mut self, at: Moment, what: T) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
        let ticket = Ticket { at, id };
        self.due.insert(ticket, what);
        ticket
    }

    /// Removes a timer, if it has not fired.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.due.remove(&ticket)
    }

    /// Takes out the first timer that is due at `now`.
    pub(super) fn pop(&mut self, now: Moment) -> Option<T> {
        let first = self.due.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }

    /// When the first timer is due.
    pub(super) fn first(&self) -> Option<Moment> {
        self.due.first_key_value().map(|(ticket, _)| ticket.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_when_they_are_due_and_what_was_removed_does_not() {
        let at = |second: u64| Moment::from_micros(second * 1_000_000);
        let mut timers = Timers::default();
        timers.add(at(3), "late");
        let gone = timers.add(at(1), "gone");
        timers.add(at(2), "soon");
        timers.add(at(2), "as soon, and later");
        assert_eq!(timers.remove(gone), Some("gone"));
        assert_eq!(timers.remove(gone), None);
        assert_eq!((timers.first(), timers.pop(at(1))), (Some(at(2)), None));
        assert_eq!(timers.pop(at(2)), Some("soon"));
        assert_eq!(timers.pop(at(2)), Some("as soon, and later"));
        assert_eq!(timers.pop(at(2)), None);
        assert_eq!(timers.pop(at(4)), Some("late"));
        assert_eq!((timers.first(), timers.pop(at(4))), (None, None));
    }
}

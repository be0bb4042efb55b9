//! What the engine hears: answers and notices of the store, time limits, the end of leases. Must never hand out a lease that
//! the line did not ask for.

use std::sync::Arc;

use leasehold_core::{Busy, Fences, Held, LockName, Owner, Ttl, Wake};

use super::asking::{Asking, Term};
use super::contend::Taken;
use super::engine::{Due, Engine};
use super::hold::{Hold, Start, deadline};
use super::line::{Seat, Terms, Todo, alike};
use super::lines::Lines;
use super::seat::Waiter;
use crate::clock::Moment;
use crate::error::{Error, StoreError};
use crate::store::Notice;
use crate::telemetry;

impl Engine {
    /// The store has answered a request of `owner`, sent at `sent`, with the lock.
    pub(super) fn taken(
        self: &Arc<Self>,
        name: &LockName,
        owner: &Owner,
        sent: Moment,
        held: &Held,
    ) -> Taken {
        let mut lines = self.lines();
        let Some(asking) = lines.asking(name, owner) else {
            return Taken::NotAsked;
        };
        let ttl = asking.terms.ttl;
        let until = deadline(sent, ttl);
        let (Some(first), true) = (held.fence, until > self.clock.now()) else {
            return Taken::TooLate;
        };
        let block = held.block;
        let fences = Fences { first, block };
        let term = Term {
            asked_at: sent,
            until,
            lasts: ttl,
        };
        let todo = self.take(&mut lines, name, owner, (fences, held.queued), term);
        drop(lines);
        match todo {
            Some(todo) => {
                self.perform(name, todo, None);
                Taken::Done
            }
            None => Taken::NotAsked,
        }
    }

    fn take(
        &self,
        lines: &mut Lines<Waiter, Arc<Hold>>,
        name: &LockName,
        owner: &Owner,
        grant: (Fences, u32),
        term: Term,
    ) -> Option<Todo<Waiter, Arc<Hold>>> {
        let next_owner = |terms: &Terms| self.identity.owner(&terms.note);
        let now = self.clock.now();
        lines.taken(name, owner, next_owner, grant, now, |seat, asking| {
            let start = seat.caller.start(owner, grant.0.first, &seat.terms);
            let unsettled_until = asking.unsettled_until;
            let start = Start {
                asked_at: term.asked_at,
                until: term.until,
                unsettled_until,
                lasts: term.lasts,
                ..start
            };
            Arc::new(Hold::new(self.clock.clone(), start, now))
        })
    }

    /// The lock is busy, said the answer to a request sent at `sent`. Whether somebody goes on waiting.
    pub(super) fn busy(
        self: &Arc<Self>,
        name: &LockName,
        owner: &Owner,
        sent: Moment,
        busy: Busy,
    ) -> bool {
        let mut lines = self.lines();
        let Some(asking) = lines.asking(name, owner) else {
            return false;
        };
        let first = asking.busy.is_none();
        let told = (first && telemetry::hears_details()).then(|| busy.clone());
        asking.heard(sent, busy);
        let (todo, goes_on) = lines.busy(name);
        drop(lines);
        self.perform(name, todo, None);
        if goes_on {
            if let Some(busy) = told {
                self.telemetry.in_line(name, &busy);
            }
            if first {
                // A lock that someone waits for is worth showing.
                self.index(name);
            }
            self.tell_watchers(name, None);
        }
        goes_on
    }

    /// The store did not give the lock, for this reason: everyone in line is told.
    pub(super) fn fail(&self, name: &LockName, owner: &Owner, error: &Error) {
        let seats = self.lines().fail(name, owner);
        self.refuse(seats, error);
    }

    /// The store does not answer, for now: who does not wait is told.
    pub(super) fn failing(&self, name: &LockName, owner: &Owner, error: &StoreError) {
        let seats = self.lines().failing(name, owner);
        self.refuse(seats, &error.clone().into());
    }

    /// The time limit of a request has passed: it is told why, unless an answer is about to say so.
    pub(super) fn limit_passed(&self, name: &LockName, id: u64) {
        let now = self.clock.now();
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(name) else {
            return;
        };
        let Some(at) = line.waiting.iter().position(|seat| seat.id == id) else {
            return;
        };
        match line.waiting[at]
            .caller
            .out_of_time(&line.turn, at, now, self.store.label())
        {
            Err(later) => {
                let ticket = self.agenda.add(later, Due::Limit(name.clone(), id));
                line.waiting[at].caller.alarm = Some(ticket);
            }
            Ok(error) => {
                drop(lines);
                self.leave(name, id, |waiter| waiter.fail(&error));
            }
        }
    }

    /// Calls those who watch the waiting: all in line, or one.
    pub(super) fn tell_watchers(&self, name: &LockName, only: Option<u64>) {
        let now = self.clock.now();
        let watchers: Vec<_> = {
            let mut lines = self.lines();
            let Some(line) = lines.get_mut(name) else {
                return;
            };
            let watches = |(at, seat): (usize, &Seat<Waiter>)| {
                let watch = only.is_none_or(|id| id == seat.id);
                let told = watch.then(|| seat.caller.watch(&line.turn, at, now));
                told.flatten().map(|told| (seat.id, told))
            };
            line.waiting
                .iter()
                .enumerate()
                .filter_map(watches)
                .collect()
        };
        for (id, told) in watchers {
            if told.call().is_err()
                && let Some(line) = self.lines().get_mut(name)
                && let Some(seat) = line.waiting.iter_mut().find(|seat| seat.id == id)
            {
                seat.caller.stop_watching();
            }
        }
    }

    /// What a store tells without being asked.
    pub(super) fn hear(self: &Arc<Self>, notice: Notice) {
        // As in `attend`.
        let _under_way = self.tasks.token();
        match notice {
            Notice::Granted { key, wake } => self.granted(&LockName::from_key(&key), &wake),
            Notice::Wanted { key, owner } => {
                let name = LockName::from_key(&key);
                let todo = self.lines().wanted(&name, &owner, self.clock.now());
                self.perform(&name, todo, None);
            }
            Notice::First { key, owner } => {
                self.asking(&LockName::from_key(&key), &owner, |asking| asking.ask());
            }
            Notice::Cut(why) => {
                self.lines().each_asking(Asking::broken);
                self.telemetry.cut(self.store.label(), why);
            }
            Notice::Replaced(how) => {
                self.keeper.replaced(self, how);
                self.beside.replaced(how, self.clock.now());
            }
            Notice::Reconnected => {
                self.identity.renew();
                self.lines().each_asking(|asking| {
                    asking.broken();
                    asking.ask();
                });
                self.settle_abandoned();
                self.keeper.reconnected(self);
                self.telemetry.restored(self.store.label());
            }
            // For whoever guards cache entries: the client passes it on.
            #[cfg(feature = "cache")]
            Notice::LoadEnded { .. } | Notice::Changed { .. } => {}
        }
    }

    fn granted(self: &Arc<Self>, name: &LockName, wake: &Wake) {
        let now = self.clock.now();
        let mut lines = self.lines();
        if let Some(asking) = lines.asking(name, &wake.owner) {
            let (Some(first), Some(term)) = (wake.fence, asking.granted_until(wake, now)) else {
                return asking.claim();
            };
            asking.served();
            let block = wake.block;
            let grant = (Fences { first, block }, wake.queued);
            let todo = self.take(&mut lines, name, &wake.owner, grant, term);
            drop(lines);
            self.perform(name, todo.unwrap_or_default(), None);
        } else if lines.owned_by(name, &wake.owner).is_none() {
            drop(lines);
            // It was given up (E2), or found out by itself, used and released: then this does nothing.
            self.let_go(name, &wake.owner);
        }
    }

    /// A renewal that was sent at `sent` was confirmed: so many others wait.
    pub(super) fn renewed(
        self: &Arc<Self>,
        name: &LockName,
        owner: &Owner,
        (queued, sent): (u32, Moment),
    ) {
        let todo = self
            .lines()
            .queued(name, owner, (queued, sent), self.clock.now());
        self.perform(name, todo, None);
    }

    /// A lease was lost: who waits here does not wait for its user to notice.
    pub(super) fn lost(self: &Arc<Self>, hold: &Arc<Hold>) {
        let owner = |terms: &Terms| self.identity.owner(&terms.note);
        let todo = self
            .lines()
            .lost(&hold.name, &hold.owner, owner, self.clock.now());
        self.perform(&hold.name, todo, None);
    }

    /// Does `with` what the line knows of this owner's way, as long as it stands by it.
    pub(super) fn asking<R>(
        &self,
        name: &LockName,
        owner: &Owner,
        with: impl FnOnce(&mut Asking) -> R,
    ) -> Option<R> {
        self.lines().asking(name, owner).map(with)
    }

    /// Whether someone in the line of `owner` waits for a busy lock, and how many from the first on want its terms.
    pub(super) fn has_waiters(&self, name: &LockName, owner: &Owner) -> (bool, usize) {
        let mut lines = self.lines();
        let Some(asking) = lines.asking(name, owner) else {
            return (false, 0);
        };
        let terms = asking.terms.clone();
        let line = lines.get_mut(name);
        line.map_or((false, 0), |line| {
            let waits = line.waiting.iter().any(|seat| !seat.once);
            (waits, alike(&line.waiting, &terms))
        })
    }

    /// A request of `owner`, which was served, may still be carried out until then. Whether its lease will see to that.
    pub(super) fn unsettle(&self, name: &LockName, owner: &Owner, ttl: Ttl, until: Moment) -> bool {
        self.keeper.straggles(self, owner, ttl);
        let mut lines = self.lines();
        let Some(line) = lines.owned_by(name, owner) else {
            return false;
        };
        line.lease().inspect(|hold| hold.unsettle(until)).is_some()
    }
}

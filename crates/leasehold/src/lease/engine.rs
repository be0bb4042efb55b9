//! What all handles of a client share. Must never forget an owner that may still hold or wait.
//!
//! # Invariants
//!
//! - **E1** Every owner of this client that the store may know stands in a line, or somebody is on the way to settle it, or
//!   does so at the next connection.
//! - **E2** A wake for an owner that stands in no line is answered with a release: the lock was granted to someone who
//!   gave up.
//! - **E3** No lock of ours is held while a store, a caller or a watcher is called: each may come back at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{LockName, Owner, Step};
use tokio::sync::{oneshot, watch};

use super::Lease;
use super::agenda::Agenda;
use super::asking::Ask;
use super::beside::Beside;
use super::contend::{Contender, acquire};
use super::giving::Giving;
use super::hold::Hold;
use super::identity::Identity;
use super::keeper::Keeper;
use super::line::{Do, Seat, Terms, Todo};
use super::lines::Lines;
use super::seat::{Pending, Request, Waiter};
use super::settle::{Abandoned, Settle, release};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::{Done, Listener, Store};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::Telemetry;

/// How often a name that is waited for is put into the index anew.
const INDEX_AGAIN: Duration = Duration::from_secs(10);

/// How many names are remembered to be in the index.
const INDEXED: usize = 1024;

/// Something that time brings.
#[derive(Debug)]
pub(super) enum Due {
    /// A renewal or a deadline of this owner's lease.
    Lease(Owner),
    /// The time limit of a request.
    Limit(LockName, u64),
    /// A lock that may be idle for too long.
    Idle(LockName),
}

/// The machinery behind a client.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) identity: Identity,
    /// How long a waiter in line puts up with a store that does not answer.
    pub(crate) patience: Duration,
    pub(crate) telemetry: Telemetry,
    pub(super) keeper: Keeper,
    pub(super) agenda: Arc<Agenda<Due>>,
    pub(super) lines: Mutex<Lines<Waiter, Arc<Hold>>>,
    next_seat: AtomicU64,
    indexed: Mutex<HashMap<LockName, Moment>>,
    /// Owners that were released for later (at-least-hold), and until when: what is late must not free their locks.
    pub(super) kept: Mutex<HashMap<Owner, Moment>>,
    /// Owners that were released besides by their leases, and until when that is worth knowing.
    pub(super) undone: Mutex<HashMap<Owner, Moment>>,
    /// What is held beside leases, and hears of a replaced server as well.
    pub(crate) beside: Beside,
    /// What the next connection is to settle.
    pub(super) abandoned: Abandoned,
    closing: watch::Sender<bool>,
}

/// What a client needs before it has a store.
pub(crate) struct Plan {
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) identity: Identity,
    pub(crate) patience: Duration,
    pub(crate) telemetry: Telemetry,
}

/// The way from a store to the engine that uses it.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<OnceLock<Weak<Engine>>>);

impl Wire {
    /// Where the store delivers its notices. Weak, so that the store does not keep the engine alive that keeps the store.
    pub(crate) fn listener(&self) -> Listener {
        let wire = self.0.clone();
        Arc::new(move |notice| {
            if let Some(engine) = wire.get().and_then(Weak::upgrade) {
                engine.hear(notice);
            }
        })
    }
}

impl Engine {
    /// The engine of a store that delivers its notices by `wire`, and what has to run beside it until it is dropped.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        plan: Plan,
        wire: &Wire,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let engine = Arc::new(Self {
            store,
            clock: plan.clock,
            tasks: plan.tasks,
            identity: plan.identity,
            patience: plan.patience,
            telemetry: plan.telemetry,
            keeper: Keeper::default(),
            agenda: Arc::new(Agenda::new()),
            lines: Mutex::default(),
            next_seat: AtomicU64::new(0),
            indexed: Mutex::default(),
            kept: Mutex::default(),
            undone: Mutex::default(),
            beside: Beside::default(),
            abandoned: Abandoned::default(),
            closing: watch::Sender::new(false),
        });
        // Set once: a wire belongs to one engine.
        drop(wire.0.set(Arc::downgrade(&engine)));
        let (agenda, clock, weak) = (
            engine.agenda.clone(),
            engine.clock.clone(),
            Arc::downgrade(&engine),
        );
        let run = async move {
            while let Some(due) = agenda.next(&clock).await {
                // Once nobody uses the engine, only what is on its way is waited for.
                if let Some(engine) = weak.upgrade() {
                    engine.attend(due);
                }
            }
        };
        (engine, run)
    }

    fn attend(self: &Arc<Self>, due: Due) {
        // What leaves its line here is on its way to the store only a moment later: who closes the client waits for that.
        let _under_way = self.tasks.token();
        match due {
            Due::Lease(owner) => self.keeper.attend(self, &owner),
            Due::Limit(name, id) => self.limit_passed(&name, id),
            Due::Idle(name) => {
                let todo = self.lines().tidy(&name, self.clock.now());
                self.perform(&name, todo, None);
            }
        }
    }

    /// Begins an acquisition. Dropping what is returned ends it, and nothing is left behind.
    pub(crate) fn acquire(self: &Arc<Self>, request: Request) -> Pending {
        let (answer, answered) = oneshot::channel();
        let id = self.next_seat.fetch_add(1, Ordering::Relaxed);
        let name = request.name.clone();
        if self.is_closed() {
            // Nobody else has the receiver yet.
            drop(answer.send(Err(StoreError::closed().into())));
        } else {
            let (now, terms) = (self.clock.now(), request.terms.clone());
            let once = request.is_once();
            let mut seat = Seat {
                id,
                terms,
                once,
                caller: Waiter::new(request, now, answer),
            };
            let todo = {
                let owner = |terms: &Terms| self.identity.owner(&terms.note);
                let mut lines = self.lines();
                if let Some(limit) = seat.caller.limit {
                    // Here, or the limit could pass before anybody is in line whom it concerns.
                    let due = Due::Limit(name.clone(), id);
                    seat.caller.alarm = Some(self.agenda.add(limit, due));
                }
                let lost = |hold: &Arc<Hold>| hold.loss().is_some();
                let mut todo = lines.outlived(&name, lost, owner, now);
                let ttl = seat.terms.ttl;
                let fits = |hold: &Arc<Hold>| hold.is_fit_to_hand_on(ttl, now);
                todo.extend(lines.enter(
                    &name,
                    seat,
                    owner,
                    now,
                    fits,
                    |seat, owner, fence, hold| self.next_lease(seat, owner, fence, hold, now),
                ));
                todo
            };
            self.perform(&name, todo, None);
            if self.is_closed() {
                // Closing may have looked before this one was in line.
                self.leave(&name, id, |waiter| {
                    waiter.fail(&StoreError::closed().into());
                });
            }
        }
        Pending::new(self.clone(), name, id, answered)
    }

    /// A request goes away; `tell` has the last word to it.
    pub(super) fn leave(&self, name: &LockName, id: u64, tell: impl FnOnce(Waiter)) {
        let seat = self.lines().leave(name, id);
        if let Some(seat) = seat {
            self.unset_alarm(&seat.caller);
            tell(seat.caller);
        }
    }

    /// Does what a line wants done. The first release is the one of the lease that is `giving` itself back.
    pub(super) fn perform(
        self: &Arc<Self>,
        name: &LockName,
        todo: Todo<Waiter, Arc<Hold>>,
        mut giving: Option<Giving>,
    ) {
        for what in todo {
            match what {
                Do::Ask(ask) => self.ask(name, ask),
                Do::Grant {
                    seat,
                    lease,
                    handed_on,
                } => self.grant(seat, lease, handed_on),
                Do::Busy(seat) => {
                    self.unset_alarm(&seat.caller);
                    seat.caller.busy();
                }
                Do::Waits(id) => self.tell_watchers(name, Some(id)),
                Do::Release { owner, lease } => self.give_up(name, owner, lease, giving.take()),
                Do::Undo {
                    owner,
                    ttl,
                    unsettled_until,
                } => {
                    let work = Settle::of(name.clone(), owner, ttl, unsettled_until);
                    release(self, work, None);
                }
                Do::Fail(seat, error) => self.refuse([seat], &error.into()),
                Do::Linger(until) => {
                    self.agenda.add(until, Due::Idle(name.clone()));
                }
            }
        }
        if let Some(giving) = giving {
            // It was handed on, or is idle: the store need not know.
            giving.tell(&self.telemetry, Ok(()));
        }
    }

    fn ask(self: &Arc<Self>, name: &LockName, ask: Ask) {
        let step = acquire(&ask.owner, &ask.terms, ask.block, ask.waits);
        let waits = ask.waits;
        let contender = Contender::new(self.clone(), name.clone(), ask);
        let sent = self.clock.now();
        let token = self.tasks.token();
        let answered = move |answer| {
            contender.begin(sent, waits, answer);
            drop(token);
        };
        self.store.send(name, step, Done::new(answered));
    }

    fn grant(self: &Arc<Self>, seat: Seat<Waiter>, hold: Arc<Hold>, handed_on: bool) {
        self.unset_alarm(&seat.caller);
        let ttl = seat.terms.ttl;
        if handed_on {
            self.keeper.hand_on(self, &hold, ttl);
        } else {
            self.keeper.keep(self, &hold);
        }
        let lease = Lease {
            hold,
            engine: self.clone(),
        };
        // A lease that cannot be delivered comes back and is dropped, which releases it (W2).
        seat.caller.served(lease);
    }

    /// Puts a name into the index, unless that was just done. Best effort: the index holds hints.
    pub(super) fn index(&self, name: &LockName) {
        let now = self.clock.now();
        let mut indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed
            .get(name)
            .is_some_and(|at| now.since(*at) < INDEX_AGAIN)
        {
            return;
        }
        if indexed.len() >= INDEXED {
            indexed.clear();
        }
        indexed.insert(name.clone(), now);
        drop(indexed);
        let (store, name) = (self.store.clone(), name.clone());
        self.tasks
            .spawn(async move { drop(store.index(Some(name)).await) });
    }

    pub(super) fn too_late(&self) -> StoreError {
        let why = "the answer came after the lease had ended";
        StoreError::new(self.store.label(), StoreErrorKind::TimedOut, why)
    }

    pub(crate) fn replaced_meanwhile(&self) -> StoreError {
        let why = "the server was replaced while it was asked";
        StoreError::new(self.store.label(), StoreErrorKind::Unavailable, why).unknown()
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until the client is being closed.
    pub(crate) async fn closing(&self) -> StoreError {
        let mut closing = self.closing.subscribe();
        // An error would mean that the sender, and so `self`, is gone.
        drop(closing.wait_for(|closing| *closing).await);
        StoreError::closed()
    }

    pub(crate) async fn close(self: &Arc<Self>) {
        self.closing.send_replace(true);
        let (seats, leases) = self.lines().close();
        self.refuse(seats, &StoreError::closed().into());
        for (name, owner, hold) in leases {
            hold.lose(LossCause::Closed).tell();
            // One that is idle was given back already, but not to the store.
            hold.give_back();
            self.give_up(&name, owner, Some(hold), None);
        }
        self.tasks.finished().await;
    }

    /// Tells those who wait why they get no lease.
    pub(super) fn refuse(&self, seats: impl IntoIterator<Item = Seat<Waiter>>, error: &Error) {
        for seat in seats {
            self.unset_alarm(&seat.caller);
            seat.caller.fail(error);
        }
    }

    pub(super) fn unset_alarm(&self, waiter: &Waiter) {
        if let Some(alarm) = waiter.alarm {
            self.agenda.remove(alarm);
        }
    }

    pub(super) fn lines(&self) -> MutexGuard<'_, Lines<Waiter, Arc<Hold>>> {
        // A line is changed as a whole or not at all, whatever panics.
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        lines.check();
        lines
    }
}

impl Drop for Engine {
    /// Nobody is left who could want a lock that lingers. The client's thread ends when the store has answered.
    fn drop(&mut self) {
        let last = Arc::new(CloseOnDrop(self.agenda.clone()));
        let (_, leases) = self.lines().close();
        for (name, owner, _) in leases {
            let (store, last) = (self.store.clone(), last.clone());
            let step = Step::Release {
                owner,
                keep: None,
                fence: None,
            };
            let done = Done::new(move |_| drop((store, last)));
            self.store.send(&name, step, done);
        }
    }
}

struct CloseOnDrop(Arc<Agenda<Due>>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

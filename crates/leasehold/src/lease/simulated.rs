//! A client without I/O, for simulations of many: the machine that ships, one request at a time, and everything else by hand. Must
//! never decide anything about a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Label, LockName, Owner, Reply, Step, Ttl, Wake};
use tokio::sync::oneshot;

use super::effects::{Effect, Effects, To};
use super::events::{Event, Release};
use super::hold::Hold;
use super::identity::Identity;
use super::machine::{About, Machine};
use super::queue::QueueEntry;
use super::renewal_entry::tell;
use super::terms::Terms;
use super::waiter::{AcquireOutcome, AcquireRequest, WaitLimit, Waiter};
use crate::backoff;
use crate::clock::{Clock, Moment};
use crate::error::{Error, StoreError};
use crate::store::Notice;
use crate::telemetry::Telemetry;

/// For how long a waiter in the queue puts up with a server that does not answer, as with a client that is built without settings.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time of all clients of a simulation.
#[derive(Clone)]
pub struct SimulatedTime {
    clock: Clock,
    begun: Moment,
    /// Has no listener.
    telemetry: Telemetry,
}

impl fmt::Debug for SimulatedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedTime")
            .field(&self.tells(self.clock.now()))
            .finish()
    }
}

impl SimulatedTime {
    /// Time that stands still at zero. The random parts of pauses depend on `seed` alone, on this thread and from now on.
    pub fn new(seed: u64) -> Self {
        backoff::seed(seed);
        let clock = Clock::manual();
        let begun = clock.now();
        Self {
            clock,
            begun,
            telemetry: Telemetry::default(),
        }
    }

    /// It is so late, or later already.
    pub fn set(&self, since_begin: Duration) {
        let at = self.begun.after(since_begin);
        self.clock.advance(at.since(self.clock.now()));
    }

    fn tells(&self, moment: Moment) -> Duration {
        moment.since(self.begun)
    }
}

/// A step that a client sends.
#[derive(Debug)]
pub struct Outgoing {
    /// The step.
    pub step: Step,
    /// Where its answer goes.
    pub ticket: ReplyTo,
}

/// The way of an answer back to the part of a client that waits for it.
#[derive(Debug)]
pub struct ReplyTo(To);

/// The stage of a client's request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    Idle,
    /// It waits.
    Waits,
    /// It has the lock until then, unless it renews the lease.
    Holds(Duration),
    /// It gives the lock back.
    Releases,
}

/// A notice of the store.
#[derive(Debug)]
pub enum News {
    /// It was granted the lock.
    Granted(Wake),
    /// Another one waits for the lock that this owner has.
    Wanted(Owner),
    /// This owner is the first in the queue now.
    First(Owner),
}

enum User {
    Idle,
    Asks(oneshot::Receiver<AcquireOutcome>),
    Works(Arc<Hold>),
    Ends(oneshot::Receiver<Result<(), Error>>),
}

/// A client that asks for one lock at a time.
pub struct Simulated {
    machine: Machine,
    effects: Effects,
    time: SimulatedTime,
    name: LockName,
    user: User,
    asked: u64,
    sent: Vec<Outgoing>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated")
            .field("name", &self.name)
            .field("next", &self.next())
            .finish_non_exhaustive()
    }
}

impl Simulated {
    /// A client with this number, whose owners depend on it and on `seed` alone.
    pub fn new(time: &SimulatedTime, name: &LockName, number: u64, seed: u64) -> Self {
        let about = About {
            store: "simulated:".into(),
            outage_timeout: OUTAGE_TIMEOUT,
        };
        let identity = Arc::new(Identity::seeded(number, seed));
        Self {
            machine: Machine::new(about, identity, time.clock.clone()),
            effects: Effects::default(),
            time: time.clone(),
            name: name.clone(),
            user: User::Idle,
            asked: 0,
            sent: Vec::new(),
        }
    }

    /// The number of the client that an owner belongs to.
    pub fn number(owner: &Owner) -> u64 {
        owner.client().get()
    }

    /// Asks for the lock, and waits for as long as it takes.
    pub fn acquire(&mut self, ttl: Ttl) {
        let terms = Terms {
            ttl,
            note: Label::default(),
        };
        let request = AcquireRequest {
            name: self.name.clone(),
            terms: terms.clone(),
            auto_renew: true,
            max_hold: None,
            linger: Duration::ZERO,
            on_wait: None,
            limit: WaitLimit::Forever,
        };
        let (answer, outcome) = oneshot::channel();
        let entry = QueueEntry {
            id: self.asked,
            terms,
            once: false,
            caller: Waiter::new(request, self.time.clock.now(), answer),
        };
        self.asked += 1;
        self.user = User::Asks(outcome);
        self.handle(Event::Asked(self.name.clone(), entry));
    }

    /// Gives the lock back, if it has it.
    pub fn release(&mut self) {
        if let User::Works(hold) = &self.user {
            let (verdict, outcome) = oneshot::channel();
            let release = Release::once(hold, None, Some(verdict), || true);
            self.user = User::Ends(outcome);
            if let Some(release) = release {
                self.handle(Event::Released(release));
            }
        }
    }

    /// The server has answered a step.
    pub fn answered(&mut self, ticket: ReplyTo, answer: Result<Reply, StoreError>) {
        self.handle(Event::Answered(ticket.0, answer));
    }

    /// The server tells something.
    pub fn told(&mut self, told: News) {
        let key = self.name.as_str().to_owned();
        self.handle(Event::Noticed(match told {
            News::Granted(wake) => Notice::Granted { key, wake },
            News::Wanted(owner) => Notice::Wanted { key, owner },
            News::First(owner) => Notice::First { key, owner },
        }));
    }

    /// Fires the timers that are due.
    pub fn pass(&mut self) {
        let is_due = |next: Option<Duration>, now| next.is_some_and(|next| next <= now);
        while is_due(self.next(), self.time.tells(self.time.clock.now())) {
            self.handle(Event::Passed);
        }
    }

    /// When something is due.
    pub fn next(&self) -> Option<Duration> {
        let next = self.effects.next()?;
        Some(self.time.tells(next.at))
    }

    /// Takes the steps that it sends.
    pub fn take_sent(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.sent)
    }

    /// The stage of its request, which ends when that has failed or was carried out.
    pub fn stage(&mut self) -> Phase {
        match &mut self.user {
            User::Asks(outcome) => match outcome.try_recv() {
                Ok(Ok(Some(hold))) => self.user = User::Works(hold),
                Err(oneshot::error::TryRecvError::Empty) => return Phase::Waits,
                Ok(_) | Err(_) => self.user = User::Idle,
            },
            User::Ends(verdict) => match verdict.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return Phase::Releases,
                Ok(_) | Err(_) => self.user = User::Idle,
            },
            User::Idle | User::Works(_) => {}
        }
        match &self.user {
            User::Works(hold) => Phase::Holds(self.time.tells(hold.valid_until())),
            _ => Phase::Idle,
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.time.clock.now();
        self.machine.handle(now, event, &mut self.effects);
        for effect in self.effects.take() {
            let outbox = &mut self.sent;
            let send = |_, step, to| {
                outbox.push(Outgoing {
                    step,
                    ticket: ReplyTo(to),
                });
            };
            // It waits for the answer, so that no lease comes back.
            drop(carry_out(effect, &self.time.telemetry, send));
        }
    }
}

/// Carries out the effects of a machine that concern no caller. A lease without a caller comes back.
pub(super) fn carry_out(
    effect: Effect,
    telemetry: &Telemetry,
    send: impl FnOnce(LockName, Step, To),
) -> Option<Arc<Hold>> {
    match effect {
        Effect::Send { name, step, to } => send(name, step, to),
        Effect::Grant(waiter, hold) => return waiter.served(hold).err(),
        Effect::Busy(waiter) => waiter.busy(),
        Effect::Refuse(waiter, error) => waiter.fail(&error),
        Effect::Extended(callers, verdict) => tell(callers, &verdict),
        Effect::Released(pending_release, result) => pending_release.tell(telemetry, result),
        Effect::Gone(_)
        | Effect::Watch(..)
        | Effect::Index(_)
        | Effect::Forgotten(_)
        | Effect::Ended(..)
        | Effect::Renewed(..)
        | Effect::InLine(..) => {}
    }
    None
}

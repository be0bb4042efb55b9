//! Undoing what reached the store. Must never stop before the store has confirmed, or time has; and what only time has, is
//! undone at the next connection.
//!
//! A request whose outcome is unknown can still be lying in a buffer: a stopped server carries it out when it goes on,
//! with a full TTL, long after the client gave up. So after an unknown outcome one confirmation is not enough: the
//! release is repeated until a full TTL has passed since the last such request. Owners are used once, so a release too
//! many can never hit anybody else (core: C3).
//!
//! A settlement that is given up while the connection lasts leaves nothing behind. A connection that is silent for half a second
//! after a request was not answered is closed, and a server answers in order. So a connection that lasts has carried out or refused
//! all that was sent over it before, and the TTL of that has passed when the settlement is given up (`MARGIN`). A request that an
//! older connection brings later than that holds the lock for its own TTL at most, unless the next connection comes first.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::{Fence, HolderView, LockName, Owner, Reply, Step, Ttl};
use tokio::sync::oneshot;

use super::engine::Engine;
use super::hold::{Hold, drift, rounded_up};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Error, LossCause, Lost};
use crate::store::{Answer, Done};
use crate::sync::{Mutex, MutexGuard};

/// How long after the TTL a settlement goes on trying.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the caller of a release waits for the store to come back before it is told that it did not confirm.
const CALLER_WAITS: Duration = Duration::from_secs(2);

/// How many settlements that were not confirmed are remembered.
const ABANDONED: usize = 1024;

/// Settlements that ended without an answer, first come first. A server that was stopped for longer than they tried may still
/// carry out the requests that they are to undo, with a full TTL.
#[derive(Default)]
pub(super) struct Abandoned(Mutex<VecDeque<Settle>>);

/// What is to be undone.
pub(crate) struct Settle {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) ttl: Ttl,
    /// The fence of the grant, where it is known. Clean-up lets go of whatever there is; a lease, of what its user believed to have.
    pub(crate) fence: Option<Fence>,
    pub(crate) keep: Option<Ttl>,
    /// An earlier request was not answered and may be carried out until then.
    pub(crate) unsettled_until: Option<Moment>,
    /// The lease that is released, and whether it was lost already.
    pub(crate) hold: Option<(Arc<Hold>, Option<Lost>)>,
    /// With this release its use ends: what it shows is news.
    pub(crate) in_use: bool,
}

/// Where the verdict of a release goes.
pub(crate) type Verdict = oneshot::Sender<Result<(), Error>>;

/// Releases, and goes on in a task if that was not confirmed.
pub(crate) fn release(engine: &Arc<Engine>, work: Settle, verdict: Option<Verdict>) {
    let mut settling = Settling::new(engine.clone(), work, verdict);
    let (name, step) = (settling.work.name.clone(), settling.step());
    // Whoever closes the client waits for the answer too.
    let token = engine.tasks.token();
    let answered = move |answer| {
        if !settling.take(answer) {
            let tasks = settling.engine.tasks.clone();
            tasks.spawn(settling.run());
        }
        drop(token);
    };
    engine.store.send(&name, step, Done::new(answered));
}

/// Releases, again and again if need be.
pub(crate) async fn settle(engine: Arc<Engine>, work: Settle) {
    let mut settling = Settling::new(engine, work, None);
    let answer = settling.ask().await;
    if !settling.take(answer) {
        settling.run().await;
    }
}

struct Settling {
    engine: Arc<Engine>,
    work: Settle,
    verdict: Option<Verdict>,
    begun: Moment,
    /// An earlier try may have been carried out.
    unsure: bool,
    backoff: Backoff,
}

impl Settling {
    fn new(engine: Arc<Engine>, work: Settle, verdict: Option<Verdict>) -> Self {
        let begun = engine.clock.now();
        Self {
            engine,
            work,
            verdict,
            begun,
            unsure: false,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
        }
    }

    fn step(&self) -> Step {
        // At-least-hold counts from the call, whenever the store hears of it; a repeat must not begin it anew.
        let passed = self.engine.clock.now().since(self.begun);
        let left = |keep: Ttl| rounded_up(keep.get().saturating_sub(passed));
        Step::Release {
            owner: self.work.owner.clone(),
            keep: self.work.keep.and_then(left),
            fence: self.work.fence,
        }
    }

    async fn ask(&self) -> Answer {
        let step = self.step();
        self.engine.store.apply(&self.work.name, step).await
    }

    /// Takes an answer, and tells the verdict as soon as there is one. Whether all is settled.
    fn take(&mut self, answer: Answer) -> bool {
        let now = self.engine.clock.now();
        let confirmed = match answer {
            Ok(reply) => {
                let undone = self.engine.undone_at(&self.work.owner);
                let tried = undone.map(|at| at.min(self.begun));
                let tried = tried.or(self.unsure.then_some(self.begun));
                let judged = self.work.judge(reply, tried.map(|at| now.since(at)));
                self.tell(judged);
                true
            }
            Err(error) => {
                self.unsure |= error.may_have_taken_effect;
                if !error.kind.is_transient() || now.since(self.begun) >= CALLER_WAITS {
                    self.tell(Err(error.into()));
                }
                false
            }
        };
        let settled = self.work.unsettled_until.is_none_or(|until| until <= now);
        let give_up = self.begun.after(self.work.ttl.get() + MARGIN);
        if now >= give_up && !confirmed {
            self.abandon();
        }
        (confirmed && settled) || now >= give_up
    }

    /// Leaves it to the next connection: but not what may be kept, or used by who has its token.
    fn abandon(&self) {
        let Settle {
            name, owner, ttl, ..
        } = &self.work;
        let hold = self.work.hold.as_ref();
        if self.work.keep.is_some() || hold.is_some_and(|(hold, _)| hold.is_detached()) {
            return;
        }
        let work = Settle::of(name.clone(), owner.clone(), *ttl, None);
        let mut abandoned = self.engine.abandoned.lock();
        if abandoned.len() >= ABANDONED {
            abandoned.pop_front();
        }
        abandoned.push_back(work);
    }

    async fn run(mut self) {
        loop {
            let pause = self.backoff.pause();
            self.engine.clock.sleep(pause).await;
            let answer = self.ask().await;
            if self.take(answer) {
                return;
            }
        }
    }

    fn tell(&mut self, result: Result<(), Error>) {
        if let (true, Some((hold, lost))) = (mem::take(&mut self.work.in_use), &self.work.hold) {
            let telemetry = &self.engine.telemetry;
            telemetry.given_back(&hold.name, hold.fence, &result, lost.is_some());
        }
        if let Some(verdict) = self.verdict.take() {
            // The caller may have stopped listening; the release counts all the same.
            drop(verdict.send(result));
        }
    }
}

impl Abandoned {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Settle>> {
        // A change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// The store is there again: what it may have done since nobody tried any more is undone.
    pub(super) fn settle_abandoned(self: &Arc<Self>) {
        let abandoned = mem::take(&mut *self.abandoned.lock());
        for work in abandoned {
            release(self, work, None);
        }
    }
}

impl Settle {
    /// What an owner that nobody uses any more may have left in the store.
    pub(crate) fn of(
        name: LockName,
        owner: Owner,
        ttl: Ttl,
        unsettled_until: Option<Moment>,
    ) -> Self {
        Self {
            name,
            owner,
            ttl,
            fence: None,
            keep: None,
            unsettled_until,
            hold: None,
            in_use: false,
        }
    }

    /// What the caller of a release is to know. Another request that may have freed the lock was sent at most `tried` ago.
    fn judge(&self, reply: Reply, tried: Option<Duration>) -> Result<(), Error> {
        let Some((hold, lost)) = &self.hold else {
            return Ok(());
        };
        if let Some(lost) = lost {
            return Err(lost.clone().into());
        }
        match reply {
            Reply::Released => Ok(()),
            // An earlier try of this release, or another one of ours, may have been the one that freed it, while the lease was
            // still good: unless somebody has held the lock for longer than that. One that is detached stays taken, however
            // often that is asked for.
            Reply::NotHeld(holder)
                if tried.is_some_and(|ago| is_since(holder.as_ref(), ago))
                    && !hold.is_past()
                    && !hold.is_detached() =>
            {
                Ok(())
            }
            Reply::NotHeld(holder) => {
                Err(hold.lost(LossCause::NotHeld(holder.map(Box::new))).into())
            }
            _ => Err(hold.lost(LossCause::NotHeld(None)).into()),
        }
    }
}

/// Whether a holder, as far as the store knows, has held for at most as long as something is `ago`. The store counts from the
/// fence, by its own clock; the two may run at speeds that differ by 1 %, as everywhere.
fn is_since(holder: Option<&HolderView>, ago: Duration) -> bool {
    let held_for = holder.and_then(|holder| holder.held_for);
    held_for.is_none_or(|held_for| held_for.saturating_sub(drift(held_for)) <= ago)
}

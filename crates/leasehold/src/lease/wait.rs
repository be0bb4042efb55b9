//! From the first request to a lease, or to nothing at all. Must never leave anything in the store that nobody owns.
//!
//! # Invariants
//!
//! - **W1** A request to the store is never dropped half-way: whoever stops waiting, its outcome is awaited, then undone.
//! - **W2** Either the caller receives the lease, or it is released; there is no moment at which neither is certain,
//!   since a lease that cannot be delivered is dropped, which releases it.
//! - **W3** An unreachable store is never reported as a busy lock, and an unknown outcome never as "not acquired".

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Busy, Held, LockName, Mode, Owner, Reply, Step, Ttl, Wait};
use tokio::sync::oneshot;

use super::engine::{Ear, Engine, Told};
use super::hold::{Hold, deadline};
use super::{Lease, Waiting};
use crate::backoff::{Backoff, jittered};
use crate::clock::Moment;
use crate::error::{Error, StoreError, StoreErrorKind, Timeout};

/// How long a request that is not in line puts up with a store that does not answer.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// A store that leaves a request unanswered for longer than this, the head's poll, is not reported as a busy lock.
const SILENCE: Duration = Duration::from_millis(250);

/// How long the caller is willing to wait for a busy lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    Once,
    Within(Duration),
    Forever,
}

/// One acquisition, as asked for.
pub(crate) struct Request {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) patience: Patience,
}

/// What is called each time the store answers that the lock is busy.
pub(crate) type OnWait = Arc<dyn Fn(&Waiting) + Send + Sync>;

type Caller = oneshot::Sender<Result<Option<Lease>, Error>>;

/// Acquires for `caller`, and cleans up if that fails or nobody wants the result any more.
pub(crate) async fn wait(engine: Arc<Engine>, request: Request, caller: Caller) {
    let begun = engine.clock.now();
    let mut contender = Contender {
        ear: engine.registry.wait(&request.owner),
        limit: match request.patience {
            Patience::Within(limit) => Some(begun.after(limit)),
            Patience::Once | Patience::Forever => None,
        },
        begun,
        caller: Some(caller),
        queued: false,
        unsettled_until: None,
        failure: None,
        on_wait: request.on_wait.clone(),
        busy: None,
        backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
        engine: &engine,
        request: &request,
    };
    let end = contender.contend().await;
    let Contender {
        caller,
        queued,
        unsettled_until,
        ..
    } = contender;
    match end {
        End::Held(hold) => {
            let lease = engine.keep(hold, request.ttl, request.auto_renew);
            let result = if engine.is_closed() {
                // Closing may have looked for leases before this one was there; from here on it finds it.
                drop(lease);
                Err(StoreError::closed().into())
            } else {
                Ok(Some(lease))
            };
            return tell(caller, result);
        }
        // The caller first: it need not wait for the cleaning.
        End::Busy => tell(caller, Ok(None)),
        End::Failed(error) => tell(caller, Err(error)),
        End::Abandoned => {}
    }
    if queued || unsettled_until.is_some() {
        engine.abandon(&request, unsettled_until).await;
    } else {
        engine.forget(&request.owner);
    }
}

fn tell(caller: Option<Caller>, result: Result<Option<Lease>, Error>) {
    // Fails when the caller has stopped listening, which is its right: a lease that comes back is dropped here, and so
    // released (W2).
    drop(caller.map(|caller| caller.send(result)));
}

enum End {
    Held(Hold),
    Busy,
    Failed(Error),
    Abandoned,
}

/// What to do next.
enum Next {
    Ask,
    Claim,
    Stop(End),
}

struct Contender<'a> {
    engine: &'a Arc<Engine>,
    request: &'a Request,
    ear: Arc<Ear>,
    caller: Option<Caller>,
    begun: Moment,
    limit: Option<Moment>,
    /// The store has answered that this owner holds or waits.
    queued: bool,
    /// A request was not answered and may be carried out until then.
    unsettled_until: Option<Moment>,
    /// Since when there has been no answer, and the last failure.
    failure: Option<(Moment, StoreError)>,
    on_wait: Option<OnWait>,
    busy: Option<Busy>,
    backoff: Backoff,
}

impl Contender<'_> {
    async fn contend(&mut self) -> End {
        let mut next = Next::Ask;
        loop {
            let step = match next {
                Next::Ask => self.acquire(),
                // Works where a new acquire would not: on a server whose memory is full.
                Next::Claim => Step::Extend {
                    owner: self.request.owner.clone(),
                    ttl: self.request.ttl,
                },
                Next::Stop(end) => return end,
            };
            if self.engine.is_closed() {
                return End::Failed(StoreError::closed().into());
            }
            let sent = self.engine.clock.now();
            let answer = self.ask(step).await;
            if self.caller.as_ref().is_none_or(oneshot::Sender::is_closed) {
                // An answer that came too late has been accounted for in `unsettled_until` and `queued`.
                return End::Abandoned;
            }
            next = match answer {
                Ok(Reply::Held(held)) => self.held(sent, &held).await,
                Ok(Reply::Busy(busy)) => self.wait_turn(busy).await,
                // A claim that came too late: back to the end of the line.
                Ok(_) => Next::Ask,
                Err(error) => self.failed(error).await,
            };
        }
    }

    fn acquire(&self) -> Step {
        let wait =
            (!matches!(self.request.patience, Patience::Once)).then_some(Wait { listening: true });
        let Request {
            owner, mode, ttl, ..
        } = self.request;
        Step::Acquire {
            owner: owner.clone(),
            mode: *mode,
            ttl: *ttl,
            wait,
        }
    }

    /// Sends one request and awaits its outcome, even if the time limit passes meanwhile: the caller is answered then,
    /// and not kept waiting for the cleaning (W1).
    async fn ask(&mut self, step: Step) -> Result<Reply, StoreError> {
        let asked = self.engine.clock.now();
        let mut request = self.engine.store.apply(&self.request.name, step);
        let answer = match self.limit {
            None => request.await,
            // A request under way gets a moment more than the limit: its answer says why there is no lock, or that there is.
            Some(limit) => tokio::select! {
                biased;
                answer = &mut request => answer,
                () = self.engine.clock.sleep_until(limit.max(asked.after(SILENCE))) => {
                    let error = self.out_of_time(true);
                    tell(self.caller.take(), Err(error));
                    request.await
                }
            },
        };
        match &answer {
            Ok(Reply::Busy(_)) => self.queued = !matches!(self.request.patience, Patience::Once),
            Ok(Reply::Held(_)) => self.queued = true,
            Err(error) if error.may_have_taken_effect => {
                let now = self.engine.clock.now();
                self.unsettled_until = Some(now.after(self.request.ttl.get()));
            }
            Ok(_) | Err(_) => {}
        }
        answer
    }

    async fn held(&mut self, sent: Moment, held: &Held) -> Next {
        let request = self.request;
        let until = deadline(sent, request.ttl);
        let (Some(fence), true) = (held.fence, until > self.engine.clock.now()) else {
            // The answer took longer than the lease lasts: not worth handing out. It stays ours to claim or undo.
            let slow = StoreError::new(
                self.engine.store.label(),
                StoreErrorKind::TimedOut,
                "the answer came after the lease had ended",
            );
            return self.failed(slow).await;
        };
        let max_until = request.max_hold.map(|max_hold| sent.after(max_hold));
        let (name, owner) = (request.name.clone(), request.owner.clone());
        let clock = self.engine.clock.clone();
        let mut lease = Hold::new(clock, name, owner, fence, until, max_until);
        lease.unsettled_until = self.unsettled_until;
        Next::Stop(End::Held(lease))
    }

    async fn wait_turn(&mut self, busy: Busy) -> Next {
        self.failure = None;
        self.backoff.reset();
        if matches!(self.request.patience, Patience::Once) {
            return Next::Stop(End::Busy);
        }
        if self.busy.is_none() {
            // A lock that someone waits for is worth showing. Best effort: the index holds hints.
            let (store, name) = (self.engine.store.clone(), self.request.name.clone());
            let remember = async move { drop(store.index(Some(name)).await) };
            self.engine.tasks.spawn(remember);
        }
        self.tell_watcher(&busy);
        let pause = if busy.ahead == 0 {
            busy.poll_after
        } else {
            jittered(busy.poll_after)
        };
        self.busy = Some(busy);
        self.listen(pause).await
    }

    /// Calls the caller's `on_wait`. One that panics has said so; it is not called again, and the waiting goes on.
    fn tell_watcher(&mut self, busy: &Busy) {
        let Some(on_wait) = self.on_wait.clone() else {
            return;
        };
        let waiting = Waiting {
            name: self.request.name.as_str().to_owned(),
            holder: busy.holder.clone(),
            ahead: busy.ahead,
            waited: self.engine.clock.now().since(self.begun),
        };
        if catch_unwind(AssertUnwindSafe(|| on_wait(&waiting))).is_err() {
            self.on_wait = None;
        }
    }

    async fn failed(&mut self, error: StoreError) -> Next {
        let now = self.engine.clock.now();
        let since = self.failure.as_ref().map_or(now, |(since, _)| *since);
        // In line, a full server is one that may have room again; otherwise it is a clear answer.
        let hopeless =
            !(error.kind.is_transient() || self.queued && error.kind == StoreErrorKind::Full);
        let patience = if self.queued {
            self.engine.patience
        } else {
            FIRST_CONTACT
        };
        if hopeless || now.since(since) >= patience {
            // Whatever the last request came to, an earlier one may count (W3).
            let error = if self.unsettled_until.is_some() {
                error.unknown()
            } else {
                error
            };
            return Next::Stop(End::Failed(error.into()));
        }
        let is_full = error.kind == StoreErrorKind::Full;
        self.failure = Some((since, error));
        let pause = self.backoff.pause();
        match self.listen(pause).await {
            // A full server refuses to be asked, but not to let us claim what it may have granted meanwhile.
            Next::Ask if is_full => Next::Claim,
            next => next,
        }
    }

    /// Waits for a wake, for at most `pause`, and for whatever ends the waiting.
    async fn listen(&mut self, pause: Duration) -> Next {
        let engine = self.engine;
        let Some(caller) = self.caller.as_mut() else {
            return Next::Stop(End::Abandoned);
        };
        tokio::select! {
            biased;
            () = caller.closed() => Next::Stop(End::Abandoned),
            told = self.ear.hear() => match told {
                Told::Granted => Next::Claim,
                Told::Ask => Next::Ask,
            },
            closed = engine.closing() => Next::Stop(End::Failed(closed.into())),
            () = until(engine, self.limit) => Next::Stop(End::Failed(self.out_of_time(false))),
            () = engine.clock.sleep(pause) => Next::Ask,
        }
    }

    /// Why the time limit passed: a busy lock, or a store that gave no verdict, maybe on a request that is still
    /// `under_way` (W3).
    fn out_of_time(&self, under_way: bool) -> Error {
        let waited = self.engine.clock.now().since(self.begun);
        let failure = self.failure.as_ref().map(|(_, failure)| failure);
        match (failure, &self.busy) {
            (None, Some(busy)) if !under_way => Timeout {
                name: self.request.name.as_str().to_owned(),
                waited,
                holder: Some(Box::new(busy.holder.clone())),
                ahead: busy.ahead,
            }
            .into(),
            (Some(failure), _) if !under_way && self.unsettled_until.is_none() => {
                failure.clone().into()
            }
            (failure, _) => {
                let why = failure.map(|failure| format!("; before that: {}", failure.detail));
                let detail = format!("no verdict within {waited:.1?}{}", why.unwrap_or_default());
                let store = self.engine.store.label();
                let error = StoreError::new(store, StoreErrorKind::TimedOut, detail);
                error.unknown().into()
            }
        }
    }
}

async fn until(engine: &Engine, limit: Option<Moment>) {
    match limit {
        Some(limit) => engine.clock.sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

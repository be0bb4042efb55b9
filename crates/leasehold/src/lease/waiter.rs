//! One request for a lock, and its caller that waits for the answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, HolderIdentity, HolderView, LockName, Owner};
use tokio::sync::oneshot;

use super::acquisition::Acquisition;
use super::hold::{Hold, Start};
use super::queue::{QueueState, Requester};
use super::terms::Terms;
use super::timers::Ticket;
use crate::clock::Moment;
use crate::error::{Error, StoreError, StoreErrorKind, Timeout};

/// A store that leaves a request unanswered for longer than an eighth of its time limit, or than this, is not reported as a busy lock.
const SILENCE: Duration = Duration::from_millis(250);

/// How long the caller waits for a busy lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitLimit {
    Once,
    Within(Duration),
    Forever,
}

/// One acquisition, as asked for.
pub(crate) struct AcquireRequest {
    pub(crate) name: LockName,
    pub(crate) terms: Terms,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) linger: Duration,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) limit: WaitLimit,
}

impl AcquireRequest {
    pub(super) fn is_once(&self) -> bool {
        matches!(self.limit, WaitLimit::Once)
    }
}

/// The callback of [`Mutex::on_wait`](crate::Mutex::on_wait).
pub(crate) type OnWait = Arc<dyn Fn(&WaitStatus) + Send + Sync>;

/// The state of an acquisition that waits for a busy lock: see [`Mutex::on_wait`](crate::Mutex::on_wait).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitStatus {
    /// The lock.
    pub name: String,
    /// The holder.
    pub holder: HolderView,
    /// The number of waiters ahead of this acquisition.
    pub ahead: u32,
    /// How long this acquisition has waited.
    pub waited: Duration,
}

/// The result of a request. Its receiver hands the lease on, or releases it (W2).
pub(super) type AcquireOutcome = Result<Option<Arc<Hold>>, Error>;

/// The caller of a request in a queue.
pub(super) struct Waiter {
    request: AcquireRequest,
    begun: Moment,
    /// The time limit of the request.
    pub(super) limit: Option<Moment>,
    pub(super) alarm: Option<Ticket>,
    answer: oneshot::Sender<AcquireOutcome>,
}

impl Requester for Waiter {
    fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    fn lingers(&self) -> bool {
        !self.request.linger.is_zero()
    }
}

impl Waiter {
    pub(super) fn new(
        request: AcquireRequest,
        begun: Moment,
        answer: oneshot::Sender<AcquireOutcome>,
    ) -> Self {
        let limit = match request.limit {
            WaitLimit::Within(limit) => Some(begun.after(limit)),
            WaitLimit::Once | WaitLimit::Forever => None,
        };
        Self {
            request,
            begun,
            limit,
            alarm: None,
            answer,
        }
    }

    /// The initial values of its lease, as far as they depend on the request.
    pub(super) fn start(&self, owner: &Owner, fence: Fence, terms: &Terms) -> Start {
        Start {
            name: self.request.name.clone(),
            owner: owner.clone(),
            fence,
            grant: fence,
            asked_at: self.begun,
            until: self.begun,
            unsettled_until: None,
            max_hold: self.request.max_hold,
            linger: self.request.linger,
            auto_renew: self.request.auto_renew,
            ttl: terms.ttl,
            lasts: terms.ttl,
        }
    }

    /// Delivers the lease. Returns it if the caller has gone.
    pub(super) fn served(self, hold: Arc<Hold>) -> Result<(), Arc<Hold>> {
        match self.answer.send(Ok(Some(hold))) {
            Err(Ok(Some(hold))) => Err(hold),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn busy(self) {
        drop(self.answer.send(Ok(None)));
    }

    pub(super) fn fail(self, error: &Error) {
        drop(self.answer.send(Err(error.clone())));
    }

    /// The error when the time limit has passed, for the entry at this place; or when to check again. A missing answer gets a moment more
    /// than the limit, since it may grant the lock or give the reason. After a request that has just failed, the next one may be answered:
    /// with a short TTL, a stall of some milliseconds makes a request fail.
    pub(super) fn out_of_time(
        &self,
        state: &QueueState<Arc<Hold>>,
        place: usize,
        now: Moment,
        store: &str,
        request_timeout: Duration,
    ) -> Result<Error, Moment> {
        match state {
            QueueState::Asking(acquisition) => {
                // Who has a slow store has given it more time.
                let patience = SILENCE.max(request_timeout / 8);
                let patient_until = acquisition
                    .silent_since()
                    .map(|since| since.after(patience));
                match patient_until.filter(|until| *until > now) {
                    // The answer may come before.
                    Some(until) => Err(until.min(now.after(SILENCE))),
                    None => Ok(self.not_taken(acquisition, place, now, store)),
                }
            }
            QueueState::Held(session) | QueueState::Idle(session, _) => {
                Ok(self.still_busy(session.lease.view(), true, place, now))
            }
        }
    }

    /// A busy lock, or a store that gave no verdict, maybe on a request that is still under way (W3).
    fn not_taken(
        &self,
        acquisition: &Acquisition,
        place: usize,
        now: Moment,
        store: &str,
    ) -> Error {
        let under_way = acquisition.under_way.is_some();
        match (&acquisition.failure, &acquisition.busy) {
            (None, Some((_, busy))) if !under_way => {
                let client = acquisition.owner.client();
                let by_this_client = matches!(&busy.holder.who, HolderIdentity::Owner(owner) if owner.client() == client);
                let ahead = ahead(busy.ahead, place);
                self.still_busy(busy.holder.clone(), by_this_client, ahead, now)
            }
            (Some(failure), _) if !under_way && acquisition.left.unsettled_until.is_none() => {
                failure.clone().into()
            }
            (failure, _) => {
                let waited = now.since(self.begun);
                let why = failure
                    .as_ref()
                    .map(|failure| format!("; before that: {}", failure.detail));
                let detail = format!("no verdict within {waited:.1?}{}", why.unwrap_or_default());
                let error = StoreError::new(store, StoreErrorKind::TimedOut, detail);
                error.unknown().into()
            }
        }
    }

    fn still_busy(
        &self,
        holder: HolderView,
        by_this_client: bool,
        ahead: usize,
        now: Moment,
    ) -> Error {
        Timeout {
            name: self.request.name.as_str().to_owned(),
            waited: now.since(self.begun),
            holder: Some(Box::new(holder)),
            by_this_client,
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
        }
        .into()
    }

    /// The call of the caller's `on_wait`, if it has one and the holder is known.
    pub(super) fn watch(
        &self,
        state: &QueueState<Arc<Hold>>,
        place: usize,
        now: Moment,
    ) -> Option<OnWaitCall> {
        let on_wait = self.request.on_wait.clone()?;
        let (holder, ahead) = match state {
            QueueState::Asking(acquisition) => {
                let (_, busy) = acquisition.busy.as_ref()?;
                (busy.holder.clone(), ahead(busy.ahead, place))
            }
            QueueState::Held(session) | QueueState::Idle(session, _) => {
                (session.lease.view(), place)
            }
        };
        let waiting = WaitStatus {
            name: self.request.name.as_str().to_owned(),
            holder,
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            waited: now.since(self.begun),
        };
        Some(OnWaitCall { on_wait, waiting })
    }

    pub(super) fn stop_watching(&mut self) {
        self.request.on_wait = None;
    }
}

fn ahead(in_store: u32, here: usize) -> usize {
    usize::try_from(in_store)
        .unwrap_or(usize::MAX)
        .saturating_add(here)
}

/// A call of an `on_wait`.
pub(super) struct OnWaitCall {
    on_wait: OnWait,
    waiting: WaitStatus,
}

impl OnWaitCall {
    /// Calls it. An error means that it panicked; then it is not called again, and the waiting goes on.
    pub(super) fn call(self) -> std::thread::Result<()> {
        catch_unwind(AssertUnwindSafe(|| (self.on_wait)(&self.waiting)))
    }
}

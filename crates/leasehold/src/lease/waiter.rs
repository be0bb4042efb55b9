//! One request for a lock, and its caller that waits for the answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Fence, HolderIdentity, HolderView, LockName, Mode, Owner};
use tokio::sync::oneshot;

use super::acquisition::Acquisition;
use super::hold::{Hold, Start};
use super::terms::Terms;
use super::timers::Ticket;
use crate::clock::Moment;
use crate::error::{Error, StoreError, StoreErrorKind, Timeout};

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

/// A request in a line, and its caller.
pub(super) struct Waiter {
    pub(super) id: u64,
    request: AcquireRequest,
    begun: Moment,
    /// The time limit of the request.
    pub(super) limit: Option<Moment>,
    pub(super) alarm: Option<Ticket>,
    answer: oneshot::Sender<AcquireOutcome>,
}

impl Waiter {
    pub(super) fn new(
        id: u64,
        request: AcquireRequest,
        begun: Moment,
        answer: oneshot::Sender<AcquireOutcome>,
    ) -> Self {
        let limit = match request.limit {
            WaitLimit::Within(limit) => Some(begun.after(limit)),
            WaitLimit::Once | WaitLimit::Forever => None,
        };
        Self {
            id,
            request,
            begun,
            limit,
            alarm: None,
            answer,
        }
    }

    pub(super) fn name(&self) -> &LockName {
        &self.request.name
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.request.terms
    }

    pub(super) fn mode(&self) -> Mode {
        self.request.terms.mode
    }

    /// Whether it only tries, and does not wait for a busy lock.
    pub(super) fn is_once(&self) -> bool {
        self.request.is_once()
    }

    /// Whether its caller has gone.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    /// Whether its lock may stay idle in this client after the release.
    pub(super) fn lingers(&self) -> bool {
        !self.request.linger.is_zero()
    }

    /// The initial values of its lease, as far as they depend on the request.
    pub(super) fn start(&self, owner: &Owner, fence: Fence) -> Start {
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
            ttl: self.request.terms.ttl,
            lasts: self.request.terms.ttl,
            mode: self.request.terms.mode,
            slot: None,
            stay: None,
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

    /// The error when the time limit has passed and the store was asked: a busy lock, or a store that gave no verdict, maybe on a request
    /// that is still under way (W3).
    pub(super) fn not_taken(
        &self,
        acquisition: &Acquisition,
        under_way: bool,
        client: ClientId,
        place: usize,
        now: Moment,
        store: &str,
    ) -> Error {
        match (acquisition.failure.as_deref(), acquisition.busy.as_ref()) {
            (None, Some((_, busy))) if !under_way => {
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

    /// The error when the time limit has passed and the lock is busy.
    pub(super) fn still_busy(
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

    /// The call of the caller's `on_wait`, if it has one and the holder is known: `seen` says who holds, and how many wait in the store.
    pub(super) fn watch(
        &self,
        seen: impl FnOnce() -> Option<(HolderView, u32)>,
        place: usize,
        now: Moment,
    ) -> Option<OnWaitCall> {
        let on_wait = self.request.on_wait.clone()?;
        let (holder, in_store) = seen()?;
        let ahead = ahead(in_store, place);
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

//! The state of a lease, shared by its handle and the machine.
//!
//! # Invariants
//!
//! - **L1** `deadline` is `sent + ttl - drift`, where `sent` was read *before* the request was sent; so it lies before
//!   the store's expiry, however long the answer took.
//! - **L2** A failed renewal is not a loss: the lease is doubtful until its deadline.
//! - **L3** Lost and retired are final: the user never gets the lease back, also if only a reading of the clock showed that the deadline
//!   had passed. So such readings and confirmed renewals exclude each other. A retired lease is renewed only while the lock is idle, for
//!   the next lease of the same owner.
//! - **L4** Only the server that keeps the lock now can confirm a lease. After the server was replaced, the lease is doubtful and is not
//!   handed on, until the new server has confirmed it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::{CLAIM_WINDOW, Fence, HolderIdentity, HolderView, LockName, Mode, Owner, Ttl};
use tokio::sync::Notify;
#[cfg(feature = "cancellation")]
use tokio_util::sync::CancellationToken;

use super::terms::rounded_up;
use crate::clock::{Clock, Moment, micros};
use crate::error::{LossCause, Lost, Replaced};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{Ended, How, ShieldedSpan};

/// Stands for the fence of a hold that has none; no store grants it. An `Option` would cost each lease eight bytes, and each use a case that
/// a lease does not have.
pub(crate) const NO_FENCE: Fence = Fence::new(0);

/// The state of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// Held, as far as the client knows.
    Held,
    /// Lost.
    Lost(Box<LossCause>),
    /// Released.
    Retired,
}

/// How a lease ended, as a [`LossWatch`](crate::LossWatch) sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// Its user released, dropped or detached it. Only [`Lease::release`](crate::Lease::release) says whether the store confirmed the
    /// release.
    Released,
    /// It was lost before that.
    Lost(Lost),
}

/// The doubt since the last confirmed renewal.
#[derive(Debug, Clone)]
struct Doubt {
    /// The last event: a renewal failed (L2), or the server was replaced.
    reason: String,
    /// The server was replaced (L4).
    replaced: Option<Replaced>,
}

/// The changing state of a hold.
#[derive(Debug)]
struct HoldState {
    standing: LeaseState,
    /// The doubt since the last confirmed renewal, if any; also of an idle lock.
    doubt: Option<Box<Doubt>>,
    /// The span of its use, from its delivery to its end, if telemetry is on.
    span: Option<Arc<ShieldedSpan>>,
    /// Made by the first task that waits for its end.
    changed: Option<Arc<Notify>>,
    /// Cancelled when it is lost. Made for the first who asks for a token.
    #[cfg(feature = "cancellation")]
    at_loss: Option<CancellationToken>,
}

/// The part of a lease that its handle and the machine share. There may be 100,000, so what is rare is in boxes.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    /// Or [`NO_FENCE`]: see [`Hold::is_fenced`].
    pub(crate) fence: Fence,
    /// The fence of the store's grant. The store knows all leases of the stay by it (core: C8).
    pub(crate) grant: Fence,
    /// When the server was asked that granted it.
    pub(crate) asked_at: Moment,
    /// The end that `max_hold` sets.
    pub(crate) max_until: Option<Moment>,
    /// How long the lock may stay idle after the release, in microseconds.
    linger_us: u64,
    pub(crate) auto_renew: bool,
    /// The requested TTL, and the time of the grant: a grant known only from a wake is shorter.
    pub(crate) ttl: Ttl,
    pub(crate) lasts: Ttl,
    pub(crate) mode: Mode,
    /// The number of its slot, if its mode has slots.
    pub(crate) slot: Option<u16>,
    /// The stay that it shares with other readers of this client. It has a deadline of its own, at most that of the stay.
    pub(crate) stay: Option<Arc<Self>>,
    /// Of a stay: how many readers have not given it back.
    readers: AtomicU32,
    /// Of a reader that does not renew itself: the last deadline to which the renewals of its stay move it.
    follows_until: AtomicU64,
    /// Since when it is held.
    pub(crate) since: Moment,
    clock: Clock,
    deadline: AtomicU64,
    /// Until when an unanswered request of the acquisition may be executed, even after a release; or 0.
    unsettled_until: AtomicU64,
    /// Until when the lock stays taken if the lease ends sooner, or 0.
    keep_until: AtomicU64,
    state: Mutex<HoldState>,
    given_back: AtomicBool,
    /// It was detached.
    detached: AtomicBool,
}

/// The initial values of a lease.
pub(crate) struct Start {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) fence: Fence,
    pub(crate) grant: Fence,
    /// When the server was asked that granted it.
    pub(crate) asked_at: Moment,
    /// Until when it may be relied on, `max_hold` aside.
    pub(crate) until: Moment,
    pub(crate) unsettled_until: Option<Moment>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) linger: Duration,
    pub(crate) auto_renew: bool,
    pub(crate) ttl: Ttl,
    pub(crate) lasts: Ttl,
    pub(crate) mode: Mode,
    pub(crate) slot: Option<u16>,
    /// The stay that it shares with other readers of this client.
    pub(crate) stay: Option<Arc<Hold>>,
}

impl Hold {
    /// A lease that begins at `since`.
    pub(crate) fn new(clock: Clock, start: Start, since: Moment) -> Self {
        if let Some(stay) = &start.stay {
            stay.readers.fetch_add(1, Ordering::SeqCst);
        }
        Self {
            name: start.name,
            owner: start.owner,
            fence: start.fence,
            grant: start.grant,
            asked_at: start.asked_at,
            max_until: start.max_hold.map(|max_hold| since.after(max_hold)),
            linger_us: micros(start.linger),
            auto_renew: start.auto_renew,
            ttl: start.ttl,
            lasts: start.lasts,
            mode: start.mode,
            slot: start.slot,
            stay: start.stay,
            readers: AtomicU32::new(0),
            follows_until: AtomicU64::new(since.after(start.ttl.get()).as_micros()),
            since,
            clock,
            deadline: AtomicU64::new(start.until.as_micros()),
            unsettled_until: AtomicU64::new(start.unsettled_until.map_or(0, Moment::as_micros)),
            keep_until: AtomicU64::new(0),
            state: Mutex::new(HoldState {
                standing: LeaseState::Held,
                doubt: None,
                span: None,
                changed: None,
                #[cfg(feature = "cancellation")]
                at_loss: None,
            }),
            given_back: AtomicBool::new(false),
            detached: AtomicBool::new(false),
        }
    }

    /// Until when an unanswered request for this owner may still be carried out.
    pub(crate) fn unsettled_until(&self) -> Option<Moment> {
        if self.is_detached() {
            // A repeated release would cut short a lease that another process has renewed meanwhile.
            return None;
        }
        let until = self.unsettled_until.load(Ordering::SeqCst);
        (until > 0).then(|| Moment::from_micros(until))
    }

    /// An unanswered request for this owner may still be carried out until then.
    pub(crate) fn unsettle(&self, until: Moment) {
        self.unsettled_until
            .fetch_max(until.as_micros(), Ordering::SeqCst);
    }

    /// It is about to be detached: left to the owner of its token.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::SeqCst);
    }

    /// It could not be left to anybody, and is released after all.
    pub(crate) fn take_back(&self) {
        self.detached.store(false, Ordering::SeqCst);
    }

    /// Whether it was left so: then it is of use only if the store still has it.
    pub(crate) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::SeqCst)
    }

    /// Whether this is the first time that it is given back.
    pub(crate) fn give_back(&self) -> bool {
        !self.given_back.swap(true, Ordering::SeqCst)
    }

    /// Until when the lease may be relied on.
    pub(crate) fn valid_until(&self) -> Moment {
        let deadline = self.deadline();
        self.max_until.map_or(deadline, |max| max.min(deadline))
    }

    /// How long it may still be relied on; zero once it is over.
    pub(crate) fn valid_for(&self) -> Duration {
        if self.is_over() {
            Duration::ZERO
        } else {
            self.valid_until().since(self.clock.now())
        }
    }

    /// How long the lock may stay idle after the release.
    pub(crate) fn linger(&self) -> Duration {
        Duration::from_micros(self.linger_us)
    }

    /// The deadline, `max_hold` aside.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_micros(self.deadline.load(Ordering::SeqCst))
    }

    /// A renewal is about to be sent that, if carried out, makes the lease end at `deadline`. If that is sooner than now
    /// known, it counts from here on, since it may stay unknown whether the request was executed (L1).
    pub(crate) fn before_renewal(&self, deadline: Moment) {
        self.deadline
            .fetch_min(deadline.as_micros(), Ordering::SeqCst);
    }

    /// The fence to name in a request for this hold. A store compares the whole hold of an owner that is alone by it (core: C8). Of
    /// others the client compares the fence of the reply.
    pub(crate) fn named(&self) -> Option<Fence> {
        (self.mode == Mode::Exclusive).then_some(self.grant)
    }

    /// A reader has given it back. Returns whether it was the last one.
    pub(crate) fn reader_left(&self) -> bool {
        self.readers.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// A reader of this stay extends it by hand, until then.
    pub(crate) fn follow_until(&self, until: Moment) {
        self.follows_until
            .store(until.as_micros(), Ordering::SeqCst);
    }

    /// The renewal of its stay was confirmed, until `deadline`. One that does not renew itself follows for its own TTL only.
    pub(crate) fn follows(&self, deadline: Moment) {
        let own = Moment::from_micros(self.follows_until.load(Ordering::SeqCst));
        let deadline = if self.auto_renew {
            deadline
        } else {
            deadline.min(own.max(self.deadline()))
        };
        // If it is past its end, its timer reports that (L3).
        let _past = self.renew_until(deadline);
    }

    /// A renewal was refused: the lease lasts until `deadline` again, as before it, unless a reader may have seen its end (L3).
    #[cfg(feature = "timestamp")]
    pub(crate) fn not_renewed(&self, deadline: Moment) {
        let state = self.state();
        if self.past(&state, self.clock.now()).is_none() {
            self.deadline.store(deadline.as_micros(), Ordering::SeqCst);
        }
    }

    /// Whether its deadline has passed, however it ended.
    pub(crate) fn is_past(&self) -> bool {
        self.valid_until() <= self.clock.now()
    }

    /// A renewal was confirmed, now or for the lease that this one follows. One that is idle, kept for the next one here, is renewed as
    /// well; it stays retired. One whose deadline has passed meanwhile is not (L3): why it is lost.
    pub(crate) fn renew_until(&self, deadline: Moment) -> Result<(), LossCause> {
        let mut state = self.state();
        if let Some(cause) = self.past(&state, self.clock.now()) {
            return Err(cause);
        }
        if !matches!(state.standing, LeaseState::Lost(_)) {
            self.deadline.store(deadline.as_micros(), Ordering::SeqCst);
            state.doubt = None;
        }
        Ok(())
    }

    /// It is over, by itself. Returns the end to observe: `None` if it was over before, or telemetry is off.
    #[must_use]
    pub(crate) fn lose(&self, cause: LossCause) -> Option<Ended> {
        let lost = How::Lost(cause.clone());
        self.finish(LeaseState::Lost(Box::new(cause)), lost)
    }

    /// Its user has given it back; it may have been lost before, by time alone. Returns the end to observe, as [`Hold::lose`].
    #[must_use]
    pub(crate) fn retire(&self, how: How) -> Option<Ended> {
        let standing = match &how {
            How::Lost(cause) => LeaseState::Lost(Box::new(cause.clone())),
            How::Released | How::Dropped => LeaseState::Retired,
        };
        self.finish(standing, how)
    }

    /// Its user has it from here on. Returns the end to observe if it is over already.
    #[must_use]
    pub(crate) fn begin(&self, span: Arc<ShieldedSpan>) -> Option<Ended> {
        let mut state = self.state();
        let how = match &state.standing {
            LeaseState::Held => {
                state.span = Some(span);
                return None;
            }
            LeaseState::Lost(cause) => How::Lost((**cause).clone()),
            LeaseState::Retired => How::Dropped,
        };
        drop(state);
        Some(self.ended(span, how))
    }

    /// The span of its use, as long as that goes on and telemetry is on.
    pub(crate) fn span(&self) -> Option<Arc<ShieldedSpan>> {
        self.state().span.clone()
    }

    fn ended(&self, span: Arc<ShieldedSpan>, how: How) -> Ended {
        Ended {
            lock: self.name.clone(),
            mode: self.mode,
            fence: self.fence,
            how,
            held: self.clock.now().since(self.since),
            span,
        }
    }

    fn finish(&self, standing: LeaseState, how: How) -> Option<Ended> {
        let span = self.change(|state| {
            state.standing = standing;
            state.span.take()
        });
        Some(self.ended(span.flatten()?, how))
    }

    /// Changes the standing unless it is final (L3).
    fn change<R>(&self, change: impl FnOnce(&mut HoldState) -> R) -> Option<R> {
        let mut state = self.state();
        if state.standing != LeaseState::Held {
            return None;
        }
        Some(change(&mut state))
    }

    /// Wakes the waiters for its end. Separate from the end itself, since a waker may call back at once (E3).
    pub(crate) fn wake_watchers(&self) {
        let changed = self.state().changed.clone();
        if let Some(changed) = changed {
            changed.notify_waiters();
        }
        #[cfg(feature = "cancellation")]
        if self.is_lost() {
            let at_loss = self.state().at_loss.clone();
            if let Some(at_loss) = at_loss {
                at_loss.cancel();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, HoldState> {
        // A change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lost, as far as anybody has noticed.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state().standing, LeaseState::Lost(_))
    }

    /// Lost or released.
    pub(crate) fn is_over(&self) -> bool {
        matches!(
            self.state().standing,
            LeaseState::Lost(_) | LeaseState::Retired
        )
    }

    /// Why it would be lost by time alone, now.
    pub(crate) fn overdue(&self, now: Moment) -> Option<LossCause> {
        self.past(&self.state(), now)
    }

    fn past(&self, state: &HoldState, now: Moment) -> Option<LossCause> {
        if self.max_until.is_some_and(|max| max <= now) {
            return Some(LossCause::MaxHold);
        }
        let reason = || state.doubt.as_ref().map(|doubt| doubt.reason.clone());
        (self.valid_until() <= now).then(|| LossCause::Deadline(reason()))
    }

    /// Why it is lost, if it is. Judged by the clock as well, so that a machine that was not told the time yet changes nothing.
    pub(crate) fn loss(&self) -> Option<Lost> {
        let state = self.state();
        let cause = match &state.standing {
            LeaseState::Lost(cause) => Some((**cause).clone()),
            LeaseState::Retired => None,
            // Read here, in turn with `renew_until` (L3).
            LeaseState::Held => self.past(&state, self.clock.now()),
        };
        drop(state);
        cause.map(|cause| self.lost(cause))
    }

    /// Whether it has a fence. A timestamp lock has none.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence != NO_FENCE
    }

    pub(crate) fn lost(&self, cause: LossCause) -> Lost {
        Lost {
            name: self.name.as_str().to_owned(),
            fence: self.is_fenced().then_some(self.fence),
            cause,
            replaced: self.state().doubt.as_ref().and_then(|doubt| doubt.replaced),
        }
    }

    // The least time that the lock stays taken.

    /// The lock stays taken for at least this time from the beginning of the lease. Called once the user has the lease.
    pub(crate) fn keep_at_least(&self, at_least: Duration) {
        self.keep_until(self.since.after(at_least));
    }

    /// The lock stays taken until then, or longer if that was said before.
    pub(crate) fn keep_until(&self, until: Moment) {
        self.keep_until
            .fetch_max(until.as_micros(), Ordering::SeqCst);
    }

    /// For how much longer the lock has to stay taken if the lease ends at `now`. Nothing is kept of a lease that was lost,
    /// which may be another's by now; one that is closed is still this client's. A detached one has a time of its own.
    pub(crate) fn left_to_keep(&self, now: Moment) -> Option<Ttl> {
        let until = Moment::from_micros(self.keep_until.load(Ordering::SeqCst));
        let is_lost = || match &self.state().standing {
            LeaseState::Lost(cause) => **cause != LossCause::Closed,
            LeaseState::Held | LeaseState::Retired => false,
        };
        if until <= now || is_lost() || self.is_detached() || self.valid_until() <= now {
            return None;
        }
        rounded_up(until.since(now))
    }

    // Doubt: a failed renewal, or a replaced server that has not confirmed the lease.

    /// The server was replaced (L4).
    pub(crate) fn replaced(&self, how: Replaced) {
        self.doubt_because(how.to_string(), Some(how));
    }

    /// A renewal failed (L2).
    pub(crate) fn doubt(&self, reason: String) {
        self.doubt_because(reason, None);
    }

    fn doubt_because(&self, reason: String, replaced: Option<Replaced>) {
        let mut state = self.state();
        if matches!(state.standing, LeaseState::Lost(_)) {
            // The reported cause of a loss never changes (L3).
            return;
        }
        let before = state.doubt.take().and_then(|doubt| doubt.replaced);
        let replaced = replaced.or(before);
        state.doubt = Some(Box::new(Doubt { reason, replaced }));
    }

    /// Copies the doubt of the lease before this one.
    pub(crate) fn doubt_like(&self, before: &Self) {
        let doubt = before.state().doubt.clone();
        if let Some(doubt) = doubt {
            self.doubt_because(doubt.reason, doubt.replaced);
        }
    }

    /// Why the last renewal failed, if it did, or how the server was replaced since.
    pub(crate) fn doubted(&self) -> Option<String> {
        match &*self.state() {
            HoldState {
                standing: LeaseState::Held,
                doubt: Some(doubt),
                ..
            } => Some(doubt.reason.clone()),
            _ => None,
        }
    }

    /// Whether the lock may be handed on in this client: enough of its time is certain, and the last renewal did not fail.
    pub(crate) fn is_fit_to_hand_on(&self, ttl: Ttl, now: Moment) -> bool {
        let certain = {
            let state = self.state();
            state.doubt.is_none() && !matches!(state.standing, LeaseState::Lost(_))
        };
        certain && self.deadline().since(now) > ttl.get().min(CLAIM_WINDOW) / 4
    }

    // Views of the lease, and waiting for its end.

    /// The view of this holder for other tasks of this client.
    pub(crate) fn view(&self) -> HolderView {
        HolderView::new(
            HolderIdentity::Owner(self.owner.clone()),
            Some(self.fence),
            Some(self.clock.now().since(self.since)),
            Some(self.valid_until().since(self.clock.now())),
        )
        .in_mode(self.mode, self.slot)
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<LeaseEnd> {
        // First, since an end is final (L3).
        let is_over = self.is_over();
        let lost = self.loss().map(LeaseEnd::Lost);
        lost.or(is_over.then_some(LeaseEnd::Released))
    }

    /// Waits until it is lost.
    pub(crate) async fn wait_lost(&self) -> Lost {
        self.wait_for(Self::loss).await
    }

    /// Waits until it is lost or given back.
    pub(crate) async fn wait_end(&self) -> LeaseEnd {
        self.wait_for(Self::end).await
    }

    /// A token that is cancelled when it is lost. Whoever has the token may cancel it, which concerns nobody else.
    #[cfg(feature = "cancellation")]
    pub(crate) fn cancelled_at_loss(&self) -> CancellationToken {
        let token = self.state().at_loss.get_or_insert_default().child_token();
        // After that: a loss in between has cancelled it, and one from before is seen here.
        if self.loss().is_some() {
            token.cancel();
        }
        token
    }

    async fn wait_for<T>(&self, look: impl Fn(&Self) -> Option<T>) -> T {
        let changed = self.state().changed.get_or_insert_default().clone();
        loop {
            let mut changed = pin!(changed.notified());
            // Listen first, or a change between the check and the wait would be missed.
            changed.as_mut().enable();
            if let Some(seen) = look(self) {
                return seen;
            }
            changed.await;
        }
    }
}

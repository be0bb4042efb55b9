//! A hold: its handle, and the state that its user sees.

use std::fmt;
use std::time::Duration;

use leasehold_core::{LockName, Ttl};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Clock, Moment};
use crate::error::{Error, LossCause, Lost, Replaced, StoreError};
use crate::lease::{Doubtful, EngineHandle};

/// The state of a hold that its user sees.
#[derive(Debug)]
pub(super) struct HoldView {
    /// The deadline in the key.
    pub(super) deadline: u64,
    pub(super) valid_until: Moment,
    /// Why the last renewal failed, or how the server was replaced since.
    pub(super) doubt: Option<String>,
    pub(super) lost: Option<LossCause>,
    /// The server was replaced since the last renewal that was confirmed (T10).
    pub(super) replaced: Option<Replaced>,
    /// The server was replaced, and the new one has not been asked yet.
    pub(super) is_to_be_confirmed: bool,
}

impl HoldView {
    /// Why it is lost, if it is; judged by the clock as well.
    pub(super) fn loss(&self, name: &LockName, clock: &Clock) -> Option<Lost> {
        let passed = || LossCause::Deadline(self.doubt.clone());
        let overdue = || (self.valid_until <= clock.now()).then(passed);
        let cause = self.lost.clone().or_else(overdue)?;
        Some(Lost {
            name: name.as_str().to_owned(),
            fence: None,
            cause,
            replaced: self.replaced,
        })
    }
}

/// For the keeper.
impl Doubtful for watch::Sender<HoldView> {
    fn valid_until(&self) -> Moment {
        self.borrow().valid_until
    }

    fn replaced(&self, how: Replaced, now: Moment) {
        self.send_if_modified(|state| {
            // The reported cause of a loss never changes (T9).
            let is_held = state.lost.is_none() && state.valid_until > now;
            if is_held {
                (state.doubt, state.replaced) = (Some(how.to_string()), Some(how));
                state.is_to_be_confirmed = true;
            }
            is_held
        });
    }
}

/// What the keeper does next.
pub(super) enum Order {
    /// The renewal is due, or the server was replaced.
    Renew,
    Extend(Ttl, OrderReply),
    /// Without a reply if the user dropped the hold.
    Release(Option<OrderReply>),
    /// Ends the hold after this time, and not before.
    Keep(Ttl, OrderReply),
    /// The client was closed.
    Close,
}

pub(super) type OrderReply = oneshot::Sender<Result<(), Error>>;

/// A lock held by the timestamp protocol until a deadline. It is not a [`Lease`](crate::Lease): it has no fence and no owner, so the
/// resource cannot tell a late holder from the current one. [Foreign clients](crate::timestamp#what-it-cannot-promise) may end it, or
/// take the lock meanwhile.
///
/// It ends by [release](TimestampHold::release) or by loss. Dropping it releases the lock in the background.
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold {
    pub(super) name: LockName,
    pub(super) clock: Clock,
    pub(super) state: watch::Receiver<HoldView>,
    /// Without a sender, the keeper releases (T9).
    pub(super) orders: mpsc::UnboundedSender<Order>,
    /// Dropped last, since that may wait for the keeper. The user's hold has it.
    pub(super) _engine: Option<EngineHandle>,
}

impl TimestampHold {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The deadline in the key, as far as the client knows, in the lock's [`Unit`](super::Unit) since 1970, by the server's clock. For
    /// people: it is later than [`TimestampHold::valid_until`].
    pub fn deadline(&self) -> u64 {
        self.state.borrow().deadline
    }

    /// The deadline of the hold by the client's clock, unless it is renewed before.
    pub fn valid_until(&self) -> Moment {
        self.state.borrow().valid_until
    }

    /// The time from now to that deadline, by a clock that counts suspend. Zero when the hold is lost.
    pub fn valid_for(&self) -> Duration {
        let state = self.state.borrow();
        if state.lost.is_some() {
            return Duration::ZERO;
        }
        state.valid_until.since(self.clock.now())
    }

    /// Why the last renewal failed, or how the server was replaced since. `None` once the hold is lost.
    pub fn doubt(&self) -> Option<String> {
        let state = self.state.borrow();
        let lost = state.loss(&self.name, &self.clock).is_some();
        state.doubt.clone().filter(|_| !lost)
    }

    /// Whether the hold is lost: its deadline has passed, or the key holds another value.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the hold is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        // The clock is read under the mutex, so a lost hold stays lost (T9).
        self.state.borrow().loss(&self.name, &self.clock)
    }

    /// Waits until the hold is lost. Put it in a `select!` beside the work.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        let mut state = self.state.clone();
        loop {
            let loss = state.borrow_and_update().loss(&self.name, &self.clock);
            if let Some(lost) = loss {
                return lost;
            }
            if state.changed().await.is_err() {
                // The client's thread has ended: nothing renews it any more.
                self.clock.sleep_until(self.valid_until()).await;
            }
        }
    }

    /// Renews the hold now. It lasts for `ttl` from now, and later renewals use `ttl` too.
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold was lost. [`Error::Store`] when the store gave no verdict: the lock is held until its deadline.
    /// [`Error::Invalid`] for a TTL out of bounds.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the renewal.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = Ttl::new(ttl)?;
        self.order(|reply| Order::Extend(ttl, reply)).await
    }

    /// Frees the lock, if the key still has the value of this hold and its deadline lies ahead by the server's clock.
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold was lost before: work done under it may have been unprotected. [`Error::Store`] when the store
    /// did not confirm: its deadline ends it at the latest.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    pub async fn release(self) -> Result<(), Error> {
        self.order(|reply| Order::Release(Some(reply))).await
    }

    /// Ends the hold, but the lock stays taken for `keep` from now. No client repeats the work until then. A hold that was lost cannot be
    /// kept. While the store gives no verdict, the client retries until the hold's deadline.
    ///
    /// # Errors
    /// [`Error::Lost`] as for [`TimestampHold::release`]. [`Error::Store`] when the store did not confirm before the hold's deadline, or
    /// when the client was closed: the lock ends after `keep` or by the TTL. [`Error::Invalid`] when `keep` is not 10 ms to 24 h: the lock
    /// is released at once.
    ///
    /// # Cancel safety
    /// Dropping the future after its first poll does not stop the retries. Before the first poll, the future is a hold, and dropping it
    /// releases the lock.
    pub async fn release_after(self, keep: Duration) -> Result<(), Error> {
        let keep = Ttl::new(keep)?;
        self.order(|reply| Order::Keep(keep, reply)).await
    }

    async fn order(&self, order: impl FnOnce(OrderReply) -> Order) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        // Fails when the hold is lost. Then the answer fails too.
        drop(self.orders.send(order(reply)));
        answer.await.unwrap_or_else(|_| {
            let lost = self.loss().map(Error::Lost);
            Err(lost.unwrap_or_else(|| StoreError::closed().into()))
        })
    }
}

impl fmt::Debug for TimestampHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimestampHold")
            .field("name", &self.name())
            .field("deadline", &self.deadline())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

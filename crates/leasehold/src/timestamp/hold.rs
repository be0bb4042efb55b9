//! The handle of a hold. Must never say that it is held when its deadline has passed.

use std::fmt;
use std::time::Duration;

use leasehold_core::{LockName, Ttl};
use tokio::sync::{mpsc, oneshot, watch};

use super::state::State;
use crate::clock::{Clock, Moment};
use crate::error::{Error, Lost, StoreError};

/// What the user of a hold wants.
pub(super) enum Order {
    Extend(Ttl, oneshot::Sender<Result<(), Error>>),
    Release(oneshot::Sender<Result<(), Error>>),
    /// Let it end after so long, and not before.
    Keep(Ttl, oneshot::Sender<Result<(), Error>>),
}

/// A lock held by the timestamp protocol, for a time. Not a [`Lease`](crate::Lease): it has no fence and no owner, so the resource
/// cannot tell a late holder from the present one, and [what foreign clients do](crate::timestamp#what-it-cannot-promise) may
/// end it or let another in.
///
/// It ends by [release](TimestampHold::release), by loss, or by being dropped, which releases in the background.
#[must_use = "dropping a hold releases the lock"]
pub struct TimestampHold {
    pub(super) name: LockName,
    pub(super) clock: Clock,
    pub(super) state: watch::Receiver<State>,
    /// Without a sender, the keeper releases (T9).
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

impl TimestampHold {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The deadline that stands under the key as far as is known, in the lock's [`Unit`](super::Unit) since 1970, by the
    /// server's clock. For people: it is later than [`TimestampHold::valid_until`].
    pub fn deadline(&self) -> u64 {
        self.state.borrow().deadline
    }

    /// Until when it may be relied on, unless it is renewed before.
    pub fn valid_until(&self) -> Moment {
        self.state.borrow().valid_until
    }

    /// How long from now that is, by a clock that counts suspend; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        let state = self.state.borrow();
        if state.lost.is_some() {
            return Duration::ZERO;
        }
        state.valid_until.since(self.clock.now())
    }

    /// Why the last renewal failed, or how the server was replaced since, while it may still go well.
    pub fn doubt(&self) -> Option<String> {
        let state = self.state.borrow();
        let lost = state.loss(&self.name, &self.clock).is_some();
        state.doubt.clone().filter(|_| !lost)
    }

    /// Whether it is over: its time has passed, or something else stands under the key.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why it is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        // The clock is read while nobody can change the state, so that what was lost once stays so (T9).
        self.state.borrow().loss(&self.name, &self.clock)
    }

    /// Waits until it is lost. Put it in a `select!` beside the work.
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

    /// Renews by hand; it lasts for `ttl` from now on, at each renewal. Dropping the future changes nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] when it was lost; [`Error::Store`] when the store gave no verdict, with the lock still held until its
    /// deadline; [`Error::Invalid`] for a TTL out of bounds.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = Ttl::new(ttl)?;
        self.order(|reply| Order::Extend(ttl, reply)).await
    }

    /// Frees the lock, if it is still ours by its value and its deadline lies ahead by the server's clock. Dropping the future
    /// does not stop it.
    ///
    /// # Errors
    /// [`Error::Lost`] when it was lost before: work done under it may have been unprotected. [`Error::Store`] when the store
    /// did not confirm: its deadline ends it at the latest.
    pub async fn release(self) -> Result<(), Error> {
        self.order(Order::Release).await
    }

    /// The same, but the lock stays taken until `keep` from now, by nobody, so that nobody does the work again too soon.
    /// It must still be held: what was lost cannot be kept. While the store gives no verdict, it is asked again, also if the
    /// future is dropped, until the hold's deadline, which then holds; the lock is never freed sooner than it was to be kept.
    ///
    /// # Errors
    /// [`Error::Lost`] as for [`TimestampHold::release`]; [`Error::Store`] when the store did not confirm until the hold's deadline, or
    /// the client was closed before: it ends by the deadline that stands there, after `keep` or by the TTL.
    /// [`Error::Invalid`] when `keep` is not 10 ms to 24 h, with the lock released at once.
    pub async fn release_after(self, keep: Duration) -> Result<(), Error> {
        let keep = Ttl::new(keep)?;
        self.order(|reply| Order::Keep(keep, reply)).await
    }

    async fn order(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<(), Error>>) -> Order,
    ) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        // Fails when it is lost, as the answer does then.
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

//! A held lock, in the hands of its user. Must never outlive the deadline that it tells.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Owner, Ttl};
use tokio::sync::oneshot;

use super::engine::Engine;
use super::hold::Hold;
use crate::clock::Moment;
use crate::error::{Error, Lost, StoreError};
use crate::telemetry::Asked;

/// The right to something, for a time. It ends by [release](Lease::release), by loss, or by being dropped, which
/// releases in the background. At the end of a program, [release](Lease::release) or [`Client::close`](crate::Client::close)
/// first: what is dropped in a process's last instant may not be sent any more, and is left to its TTL.
#[must_use = "dropping a lease releases the lock"]
pub struct Lease {
    pub(super) hold: Arc<Hold>,
    pub(super) engine: Arc<Engine>,
}

impl Lease {
    pub(super) fn new(hold: Arc<Hold>, engine: Arc<Engine>) -> Self {
        Self { hold, engine }
    }

    /// The fencing token: show it to the resource at first touch, reads included. See [`Gate`](crate::Gate).
    pub fn fence(&self) -> Fence {
        self.hold.fence
    }

    /// Who holds the lock, as the store knows it. Leases that a client hands on from task to task without asking the store
    /// have the same owner, and each a fence of its own.
    pub fn owner(&self) -> &Owner {
        &self.hold.owner
    }

    /// What [`Client::detached`](crate::Client::detached) needs to check, renew or release the lock from elsewhere while this
    /// lease lasts: `<owner>#<fence>`, the [token of its owner](Owner::token) and the fence of the store's grant. Whoever has it
    /// can release the lock, as can whoever reaches the store. To leave the lock to who has it, see [`Lease::detach`].
    pub fn token(&self) -> String {
        self.hold.owner.with_fence(self.hold.grant)
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// Until when the lease may be relied on, unless it is renewed before. One that was waited for may begin with three seconds
    /// or less, and is renewed to its TTL within one.
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }

    /// How long from now that is, by a clock that counts suspend; zero when the lease is lost.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// Whether the last renewal failed, while the deadline has not passed. It may still go well.
    pub fn is_doubtful(&self) -> bool {
        self.doubt().is_some()
    }

    /// Why the last renewal failed, while the deadline has not passed.
    pub fn doubt(&self) -> Option<String> {
        self.hold.doubted().filter(|_| !self.is_lost())
    }

    /// Whether the lease is over: its deadline has passed, or the store says that this owner does not hold the lock.
    pub fn is_lost(&self) -> bool {
        self.hold.loss().is_some()
    }

    /// Why the lease is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        self.hold.loss()
    }

    /// Waits until the lease is lost. Put it in a `select!` beside the work. To wait in another task or struct, take a
    /// [`Lease::watch`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing. A loss is final, so the next call returns it at once.
    pub async fn lost(&self) -> Lost {
        self.hold.wait_lost().await
    }

    /// Renews by hand; the lease lasts for `ttl` from now on, at each renewal. Dropping the future changes nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] when it was lost; [`Error::Store`] when the store gave no verdict, with the lease still held until
    /// its deadline; [`Error::Invalid`] for a TTL out of bounds.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = Ttl::new(ttl)?;
        let (reply, answer) = oneshot::channel();
        self.engine.extend(&self.hold.owner, ttl, reply);
        match answer.await {
            Ok(result) => result,
            // It is not renewed any more.
            Err(_) => Err(self
                .loss()
                .map_or_else(|| StoreError::closed().into(), Error::Lost)),
        }
    }

    /// Gives the lock back and hands it to the first in line; before the time of [`Mutex::at_least`](crate::Mutex::at_least) is
    /// over, the lock stays taken until then.
    ///
    /// A lock that goes to the next task of this client, or lingers, does not go back to the store. Whether the lease was
    /// held until then is judged by its deadline alone: that it was broken a moment ago is not known yet.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost before: work done under it may have been unprotected. [`Error::Store`] when
    /// the store did not confirm: the release goes on in the background, and the TTL ends the lease at the latest.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    pub async fn release(self) -> Result<(), Error> {
        self.give_back(None).await
    }

    /// The same, but the lock stays taken for `keep` from now, so that nobody does the work again too soon; or until the end of
    /// [`Mutex::at_least`](crate::Mutex::at_least), if that is later. The lease must still be held: what was lost cannot be kept.
    ///
    /// # Errors
    /// As [`Lease::release`], and [`Error::Invalid`] when `keep` is not 10 ms to 24 h, with the lock released as by a drop.
    ///
    /// # Cancel safety
    /// As [`Lease::release`].
    pub async fn release_after(self, keep: Duration) -> Result<(), Error> {
        let keep = Ttl::new(keep)?;
        self.give_back(Some(keep)).await
    }

    /// The lock stays taken for so long from its beginning, now that its user has it: what nobody received is not kept.
    pub(crate) fn keep_at_least(&self, at_least: Duration) {
        self.hold.keep_at_least(at_least);
    }

    /// Its user, who asked for it so, has it from here on.
    pub(crate) fn begin(&self, asked: Asked<'_>) {
        if let Some(watched) = asked.served(self.hold.fence) {
            self.hold.begin(watched);
        }
    }

    pub(super) async fn give_back(self, keep: Option<Ttl>) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.engine.release(&self.hold, keep, Some(reply));
        answer.await.map_err(|_| StoreError::closed())?
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // After `release` the hold is retired and this does nothing.
        self.engine.release(&self.hold, None, None);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug
            .field("name", &self.name())
            .field("fence", &self.fence())
            .field("valid_for", &self.valid_for());
        debug.finish_non_exhaustive()
    }
}

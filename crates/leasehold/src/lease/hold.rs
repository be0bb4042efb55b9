//! What a lease knows of itself. Must never go back from lost to held.
//!
//! # Invariants
//!
//! - **L1** `deadline` is `sent + ttl - drift`, where `sent` was read *before* the request was sent; so it lies before
//!   the store's expiry, however long the answer took.
//! - **L2** A failed renewal is not a loss: the lease is doubtful until its deadline.
//! - **L3** Lost and retired are final. Nothing renews a lease in either state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Fence, LockName, Owner, Ttl};
use tokio::sync::watch;

use crate::clock::{Clock, Moment};
use crate::error::{LossCause, Lost};

/// Where a lease stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The last renewal was confirmed, or none was due yet.
    Held,
    /// A renewal failed, for this reason; the deadline has not passed.
    Doubtful(String),
    /// Over, by itself.
    Lost(LossCause),
    /// Over, by release.
    Retired,
}

/// The part of a lease that its handle and the keeper share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) fence: Fence,
    /// When to give up holding whatever the store says.
    pub(crate) max_until: Option<Moment>,
    /// An earlier try to acquire was not answered, and may be carried out until then, even after a release.
    pub(crate) unsettled_until: Option<Moment>,
    clock: Clock,
    deadline: AtomicU64,
    standing: watch::Sender<Standing>,
}

/// How much sooner than the store a client lets go: 1 % of the TTL for clocks that run at different speeds, and 2 ms for
/// the store's rounding.
fn drift(ttl: Ttl) -> Duration {
    ttl.get() / 100 + Duration::from_millis(2)
}

/// The deadline of a lease that was asked for at `sent` (L1).
pub(crate) fn deadline(sent: Moment, ttl: Ttl) -> Moment {
    sent.after(ttl.get().saturating_sub(drift(ttl)))
}

impl Hold {
    pub(crate) fn new(
        clock: Clock,
        name: LockName,
        owner: Owner,
        fence: Fence,
        until: Moment,
        max_until: Option<Moment>,
    ) -> Self {
        let (standing, deadline) = (
            watch::Sender::new(Standing::Held),
            AtomicU64::new(until.as_micros()),
        );
        Self {
            name,
            owner,
            fence,
            max_until,
            unsettled_until: None,
            clock,
            deadline,
            standing,
        }
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

    /// The deadline, `max_hold` aside.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_micros(self.deadline.load(Ordering::SeqCst))
    }

    /// A renewal is about to be sent that, if carried out, makes the lease end at `deadline`. If that is sooner than now
    /// known, it counts from here on, since nobody may ever tell whether it was carried out (L1).
    pub(crate) fn before_renewal(&self, deadline: Moment) {
        self.deadline
            .fetch_min(deadline.as_micros(), Ordering::SeqCst);
    }

    /// Whether its deadline has passed, however it ended.
    pub(crate) fn is_past(&self) -> bool {
        self.valid_until() <= self.clock.now()
    }

    /// A renewal was confirmed.
    pub(crate) fn renew_until(&self, deadline: Moment) {
        self.change(|standing| {
            self.deadline.store(deadline.as_micros(), Ordering::SeqCst);
            *standing = Standing::Held;
        });
    }

    /// A renewal failed (L2).
    pub(crate) fn doubt(&self, reason: String) {
        self.change(|standing| *standing = Standing::Doubtful(reason));
    }

    pub(crate) fn lose(&self, cause: LossCause) {
        self.change(|standing| *standing = Standing::Lost(cause));
    }

    pub(crate) fn retire(&self) {
        self.change(|standing| *standing = Standing::Retired);
    }

    /// Changes the standing unless it is final (L3).
    fn change(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_if_modified(|standing| {
            let open = matches!(standing, Standing::Held | Standing::Doubtful(_));
            if open {
                change(standing);
            }
            open
        });
    }

    /// Lost or released.
    pub(crate) fn is_over(&self) -> bool {
        matches!(
            *self.standing.borrow(),
            Standing::Lost(_) | Standing::Retired
        )
    }

    /// Why it would be lost by time alone, now.
    pub(crate) fn overdue(&self, now: Moment) -> Option<LossCause> {
        if self.max_until.is_some_and(|max| max <= now) {
            return Some(LossCause::MaxHold);
        }
        (self.valid_until() <= now).then(|| match &*self.standing.borrow() {
            Standing::Doubtful(reason) => LossCause::Deadline(Some(reason.clone())),
            _ => LossCause::Deadline(None),
        })
    }

    /// Why it is lost, if it is. Judged by the clock as well, so that a keeper that could not run yet changes nothing.
    pub(crate) fn loss(&self) -> Option<Lost> {
        let standing = self.standing.borrow().clone();
        let cause = match standing {
            Standing::Lost(cause) => Some(cause),
            Standing::Retired => None,
            Standing::Held | Standing::Doubtful(_) => self.overdue(self.clock.now()),
        };
        cause.map(|cause| self.lost(cause))
    }

    pub(crate) fn lost(&self, cause: LossCause) -> Lost {
        Lost {
            name: self.name.as_str().to_owned(),
            fence: self.fence,
            cause,
        }
    }

    /// Waits until it is lost.
    pub(crate) async fn wait_lost(&self) -> Lost {
        let mut changes = self.standing.subscribe();
        loop {
            if let Some(lost) = self.loss() {
                return lost;
            }
            if changes.changed().await.is_err() {
                // Cannot happen while `self` keeps the sender.
                return self.lost(LossCause::Closed);
            }
        }
    }

    /// Why the last renewal failed, if it did.
    pub(crate) fn doubted(&self) -> Option<String> {
        match &*self.standing.borrow() {
            Standing::Doubtful(reason) => Some(reason.clone()),
            Standing::Held | Standing::Lost(_) | Standing::Retired => None,
        }
    }
}

//! What a command runs under: a lease, or a lock that is less than one. Must never make more of it than it is.

use std::time::Duration;

use leasehold::{Error, Lease, Lost, Moment, TimestampHold};

use crate::messages::quoted;

/// How long to wait for the store to confirm a release. The TTL ends the lease without it.
pub(super) const RELEASE: Duration = Duration::from_secs(3);

/// The same for a lease that was lost or could not be renewed: most often the store does not answer, and whoever starts the
/// command anew should not wait for that.
pub(super) const RELEASE_LOST: Duration = Duration::from_millis(300);

/// A lock that is held for a time.
pub(crate) enum LockGuard {
    Lease(Lease),
    /// By the timestamp protocol: no fence, no owner.
    Timestamp {
        hold: TimestampHold,
        /// By which the runs inside of this one know it.
        link: String,
    },
}

/// What came of giving the lock back.
pub(crate) enum Released {
    Yes,
    WasLost(Lost),
    Unconfirmed(String),
}

impl LockGuard {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Lease(lease) => lease.name(),
            Self::Timestamp { hold, .. } => hold.name(),
        }
    }

    /// What messages call it.
    pub(crate) fn title(&self) -> String {
        let name = quoted(self.name());
        match self {
            Self::Lease(lease) => format!("the lease on {name} (fence {})", lease.fence()),
            Self::Timestamp { .. } => format!("the lock {name} (timestamp protocol)"),
        }
    }

    /// The fence, if it has one.
    pub(crate) fn fence(&self) -> Option<u64> {
        match self {
            Self::Lease(lease) => Some(lease.fence().get()),
            Self::Timestamp { .. } => None,
        }
    }

    pub(crate) fn valid_until(&self) -> Moment {
        match self {
            Self::Lease(lease) => lease.valid_until(),
            Self::Timestamp { hold, .. } => hold.valid_until(),
        }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        match self {
            Self::Lease(lease) => lease.valid_for(),
            Self::Timestamp { hold, .. } => hold.valid_for(),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    pub(crate) fn loss(&self) -> Option<Lost> {
        match self {
            Self::Lease(lease) => lease.loss(),
            Self::Timestamp { hold, .. } => hold.loss(),
        }
    }

    pub(crate) async fn lost(&self) -> Lost {
        match self {
            Self::Lease(lease) => lease.lost().await,
            Self::Timestamp { hold, .. } => hold.lost().await,
        }
    }

    /// Why it was not renewed the last time, while it is not lost.
    pub(crate) fn doubt(&self) -> Option<String> {
        match self {
            Self::Lease(lease) => lease.doubt(),
            Self::Timestamp { hold, .. } => hold.doubt(),
        }
    }

    /// Gives the lock back, now or after `keep`, and waits up to `limit` for the store to confirm it.
    pub(crate) async fn release(self, keep: Option<Duration>, limit: Duration) -> Released {
        let released = async {
            match (self, keep) {
                (Self::Lease(lease), Some(keep)) => lease.release_after(keep).await,
                (Self::Lease(lease), None) => lease.release().await,
                (Self::Timestamp { hold, .. }, Some(keep)) => hold.release_after(keep).await,
                (Self::Timestamp { hold, .. }, None) => hold.release().await,
            }
        };
        match tokio::time::timeout(limit, released).await {
            Ok(Ok(())) => Released::Yes,
            Ok(Err(Error::Lost(lost))) => Released::WasLost(lost),
            Ok(Err(error)) => Released::Unconfirmed(error.to_string()),
            Err(_) => Released::Unconfirmed("the store does not answer".into()),
        }
    }
}

//! The lock that protects a command: a mutex lease, or a lock of the timestamp protocol.

use std::time::Duration;

use leasehold::{Error, Lease, Lost, Moment, TimestampHold};

use crate::messages::quoted;

/// The time limit for the confirmation of a release. Without it the TTL ends the lease.
pub(super) const RELEASE: Duration = Duration::from_secs(3);

/// The time limit after a lease was lost or could not be renewed. Most often the store does not answer then, and
/// a restart of the command should not wait for it.
pub(super) const RELEASE_LOST: Duration = Duration::from_millis(300);

/// A held lock.
pub(crate) enum LockGuard {
    Lease(Lease),
    /// A lock of the timestamp protocol. It has no fence and no owner.
    Timestamp {
        hold: TimestampHold,
        /// The entry of this lock in `LEASEHOLD_CHAIN`, by which nested runs recognize it.
        link: String,
    },
}

/// The outcome of a release.
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

    /// The lock's name in messages.
    pub(crate) fn title(&self) -> String {
        let name = quoted(self.name());
        match self {
            Self::Lease(lease) => format!("the lease on {name} (fence {})", lease.fence()),
            Self::Timestamp { .. } => format!("the lock {name} (timestamp protocol)"),
        }
    }

    /// The fence, if the lock has one.
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

    /// The reason of the last failed renewal, while the lock is not lost.
    pub(crate) fn doubt(&self) -> Option<String> {
        match self {
            Self::Lease(lease) => lease.doubt(),
            Self::Timestamp { hold, .. } => hold.doubt(),
        }
    }

    /// Releases the lock, now or after `keep`, and waits up to `limit` for the confirmation.
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

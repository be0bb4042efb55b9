//! The outcomes of acquisitions, renewals and leases, and their names in telemetry.

use leasehold_core::Reply;

use crate::error::{Error, LossCause, StoreError, StoreErrorKind};

/// The outcome of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acquired,
    Busy,
    Timeout,
    Unavailable,
    Denied,
    Invalid,
    /// The future was dropped.
    Cancelled,
}

impl Outcome {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 7] = [
        Self::Acquired,
        Self::Busy,
        Self::Timeout,
        Self::Unavailable,
        Self::Denied,
        Self::Invalid,
        Self::Cancelled,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Timeout(_) => Self::Timeout,
            Error::Store(error) if error.kind == StoreErrorKind::Denied => Self::Denied,
            Error::Invalid(_) => Self::Invalid,
            Error::Store(_) | Error::Lost(_) => Self::Unavailable,
        }
    }
}

/// The store's answer to a renewal.
pub(crate) enum Said {
    Renewed,
    /// The lease is lost. That is reported separately.
    Lost,
    Failed(StoreError),
}

impl Said {
    pub(crate) fn by(answer: &Result<Reply, StoreError>) -> Self {
        match answer {
            Ok(Reply::Held(_)) => Self::Renewed,
            Ok(_) => Self::Lost,
            Err(error) => Self::Failed(error.clone()),
        }
    }
}

/// A cause in one word, for labels.
pub(super) const fn word(cause: &LossCause) -> &'static str {
    match cause {
        LossCause::Deadline(_) => "deadline",
        LossCause::NotHeld(_) => "not_held",
        LossCause::MaxHold => "max_hold",
        LossCause::Closed => "closed",
    }
}

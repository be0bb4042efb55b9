//! What telemetry observes, and its words.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Busy, Fence, LockName, Reply};
use tracing::Span;

use crate::error::{Error, LossCause, StoreError, StoreErrorKind};

/// An event in the life of a client, of a request for a lock, or of a lease.
#[derive(Clone, Copy)]
pub(crate) enum Observation<'a> {
    /// A request for a lock ended after this time. It has no lock if the name is not allowed.
    Asked {
        lock: Option<&'a str>,
        outcome: Outcome<'a>,
        waited: Duration,
        span: &'a Span,
    },
    /// The use of a lease ended.
    Ended(&'a Ended),
    /// The store put a request in line.
    InLine { lock: &'a str, busy: &'a Busy },
    /// A renewal was answered after this time. A failure does not end the lease.
    Renewed {
        lock: &'a str,
        fence: Fence,
        took: Duration,
        said: &'a Said,
        /// The span of the lease's use.
        span: &'a dyn Fn() -> Option<Arc<ShieldedSpan>>,
        /// What is left of the lease.
        left: &'a dyn Fn() -> Duration,
    },
    /// A release was answered. If the lease `was_lost` before, the loss has been observed already.
    Released {
        lock: &'a str,
        fence: Fence,
        result: &'a Result<(), Error>,
        was_lost: bool,
    },
    /// A request to the store failed.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "a number only"))]
    StoreFailed(StoreErrorKind),
    /// The client begins to connect to this store.
    Connecting(&'a str),
    /// The client has connected to this store for the first time.
    Connected(&'a str),
    /// The connection to this store was lost.
    Cut { store: &'a str, why: &'a str },
    /// There is a new connection to this store.
    Restored(&'a str),
}

/// The outcome of a request for a lock.
#[derive(Clone, Copy)]
pub(crate) enum Outcome<'a> {
    Acquired(Fence),
    Busy,
    Failed(&'a Error),
    /// The future was dropped.
    Cancelled,
}

impl Outcome<'_> {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Acquired(_) => "acquired",
            Self::Busy => "busy",
            Self::Failed(Error::Timeout(_)) => "timeout",
            Self::Failed(Error::Store(error)) if error.kind == StoreErrorKind::Denied => "denied",
            Self::Failed(Error::Invalid(_)) => "invalid",
            Self::Failed(Error::Store(_) | Error::Lost(_)) => "unavailable",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The end of the use of a lease. It is observed when no mutex of the client is held.
pub(crate) struct Ended {
    pub(crate) lock: LockName,
    pub(crate) fence: Fence,
    pub(crate) how: How,
    /// How long it was used.
    pub(crate) held: Duration,
    pub(crate) span: Arc<ShieldedSpan>,
}

/// How the use of a lease ended.
#[derive(Debug, Clone)]
pub(crate) enum How {
    /// Released by its user.
    Released,
    Dropped,
    Lost(LossCause),
}

impl How {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Dropped => "dropped",
            Self::Lost(cause) => cause_word(cause),
        }
    }
}

/// The store's answer to a renewal.
pub(crate) enum Said {
    Renewed,
    /// The lease is lost. That is observed separately.
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

/// A cause in one word.
pub(super) fn cause_word(cause: &LossCause) -> &'static str {
    match cause {
        LossCause::Deadline(_) => "deadline",
        LossCause::NotHeld(_) => "not_held",
        LossCause::MaxHold => "max_hold",
        LossCause::Closed => "closed",
    }
}

// The shield between the client and the subscribers and recorders of a program, which may panic.

/// A span. Its drop may call the subscriber, whose panic is contained.
#[derive(Debug)]
pub(crate) struct ShieldedSpan(Span);

impl ShieldedSpan {
    pub(super) fn new(span: Span) -> Self {
        Self(span)
    }
}

impl Deref for ShieldedSpan {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.0
    }
}

impl Drop for ShieldedSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        shielded(|| drop(span));
    }
}

/// Calls a subscriber or a recorder, and contains its panic.
pub(crate) fn shielded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // No state of the client is changed inside.
    catch_unwind(AssertUnwindSafe(call)).ok()
}

//! The outcomes of reads and loads of cache entries, and their names in telemetry.

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Fresh,
    Stale,
    /// Loaded by this call.
    Loaded,
    /// Loaded by another call, in this or another process.
    Waited,
    /// There is no value: a loader of several keys had none, or the call had no loader.
    Nothing,
    Busy,
    Failed,
    /// The store gave no verdict.
    Unavailable,
    /// The future was dropped.
    Cancelled,
}

impl Read {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Loaded => "loaded",
            Self::Waited => "waited",
            Self::Nothing => "nothing",
            Self::Busy => "busy",
            Self::Failed => "failed",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The outcome of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// The value is stored as fresh.
    Fresh,
    /// The value is stored as stale, since the entry was invalidated meanwhile.
    Stale,
    /// The value was dropped: a newer one is stored.
    Overtaken,
    /// The store did not confirm the value.
    Unconfirmed,
    /// The loader had no value.
    Nothing,
    Failed,
    Panicked,
    /// The loader ended with its runtime or its client.
    Gone,
}

impl Load {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Overtaken => "overtaken",
            Self::Unconfirmed => "unconfirmed",
            Self::Nothing => "nothing",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Gone => "gone",
        }
    }
}

/// How the lease of a load ended before the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseLost {
    /// The lease was not renewed in time.
    Deadline,
    /// The store ended it earlier: the entry was invalidated, or the store lost its data.
    NotHeld,
}

impl LeaseLost {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::NotHeld => "not_held",
        }
    }
}

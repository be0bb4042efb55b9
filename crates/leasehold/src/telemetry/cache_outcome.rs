//! What reads and loads of cache entries came to, and in which words that is told. Must never hold a value.

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Fresh,
    Stale,
    /// Loaded by this very call.
    Loaded,
    /// Loaded by another, here or elsewhere.
    Waited,
    /// There is none: the loader of several had none for it, or the caller brought no loader.
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

/// What a load came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Its value is stored as fresh.
    Fresh,
    /// As stale, since the entry was invalidated meanwhile.
    Stale,
    /// It was dropped: something newer is stored.
    Overtaken,
    /// The store did not confirm that it has it.
    Unconfirmed,
    /// The loader had no value.
    Nothing,
    Failed,
    Panicked,
    /// The loader went with its runtime or its client.
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
    /// It was not renewed in time.
    Deadline,
    /// The store said before that time that it is over: the entry was invalidated, or the store has forgotten.
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

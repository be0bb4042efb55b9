//! The steps that a client can ask of an entry, and their replies. Neither carries a client's clock.

use std::time::Duration;

use super::entry::{Body, Format, Value, Version};
use crate::owner::ClientId;
use crate::time::Ttl;

/// The identity of one load: 128 random bits. Each call has its own, so a client's later load is never taken for an earlier
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

/// One atomic step of a store: one round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Get a fresh value, or become the loader.
    Begin(Begin),
    /// Extend the lease of a load in progress. A lease that has ended is not taken again.
    Renew {
        /// The load.
        token: Token,
        /// The lease from now on.
        lease: Ttl,
    },
    /// Store the loaded value.
    Commit(Commit),
    /// End a load without a value.
    Abandon {
        /// The load.
        token: Token,
        /// The load failed: do not ask the source for this long. `None` if the client only gave up.
        back_off: Option<(Ttl, String)>,
    },
    /// The stored value is no longer true: it is stale from now on, and so are the values of loads in progress.
    Invalidate {
        /// Delete the stale value.
        remove: bool,
    },
}

/// The arguments of [`Step::Begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Fresh for each load, and repeated by each retry of it.
    pub token: Token,
    /// The highest version that the caller has seen; it is sent no older value.
    pub seen: Version,
    /// The caller wants a newer value than that, even if that one is fresh: to refresh early, or because it cannot read it.
    pub over: bool,
    /// The lease wanted.
    pub lease: Ttl,
    /// The client to wake when another client's load ends, if it is subscribed.
    pub listener: Option<ClientId>,
}

/// The arguments of [`Step::Commit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The load.
    pub token: Token,
    /// The version that it was granted.
    pub version: Version,
    /// How long the value is fresh, in milliseconds. If the stale time is zero as well, the value is not stored.
    pub fresh_ms: u64,
    /// How long it is kept as stale after that, in milliseconds.
    pub stale_ms: u64,
    /// How long it took to load, in milliseconds.
    pub load_ms: u64,
    /// The format of the value.
    pub format: Format,
    /// The value.
    pub body: Body,
}

/// The reply to a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// There is a fresh value.
    Fresh(Value),
    /// The caller is the loader, and commits under this version.
    Load {
        /// The version of the load.
        version: Version,
        /// How many loads have failed in a row until now.
        failures: u32,
        /// A stale value that the caller has not seen.
        stale: Option<Value>,
    },
    /// Another client loads.
    Busy {
        /// How long to wait for a wake before asking again.
        poll_after: Duration,
        /// A stale value that the caller has not seen.
        stale: Option<Value>,
    },
    /// The last load failed: no client loads for a while.
    BackOff {
        /// For how long.
        left: Duration,
        /// The error of the failed load.
        error: String,
        /// A stale value that the caller has not seen.
        stale: Option<Value>,
    },
    /// The lease is renewed.
    Renewed,
    /// The load has no lease: it has ended, or the entry was invalidated. The caller may still commit.
    NotLoading,
    /// The outcome of a commit.
    Committed(CommitOutcome),
    /// The load is ended, by this step or before.
    Abandoned,
    /// The entry was invalidated.
    Invalidated,
    /// The key holds a value that is no entry, of this Redis type; it was not touched (K8).
    Foreign(String),
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommitOutcome {
    /// It is stored, and fresh until this soft expiry, in milliseconds on the store's expiry clock.
    Fresh(u64),
    /// The entry was invalidated after the load began, or the store has lost its record of invalidations. The value is stored as
    /// stale, or not at all if stale values are not kept.
    Stale,
    /// A newer value is stored; this one was dropped.
    Overtaken,
}

/// The effects of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The reply to the caller.
    pub reply: Reply,
    /// The clients to wake, so that they ask again (K5). A hint: they also poll.
    pub wakes: Vec<ClientId>,
}

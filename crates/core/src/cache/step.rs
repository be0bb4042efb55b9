//! What a client can ask of an entry and what it is answered. Must never carry a client's clock.

use std::time::Duration;

use super::entry::{Body, Format, Value};
use super::version::Version;
use crate::owner::ClientId;
use crate::time::Ttl;

/// The identity of one load: 128 random bits. Of a call and not of a client, so that a client's later load is never taken for
/// an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

/// One atomic step of a store: one round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask for a fresh value, or to be the one who loads it.
    Begin(Begin),
    /// Keep the lease of a load that is still under way. Never takes one again that has ended.
    Renew {
        /// Whose load.
        token: Token,
        /// The lease from now on.
        lease: Ttl,
    },
    /// Hand in what was loaded.
    Commit(Commit),
    /// End a load without a value.
    Abandon {
        /// Whose load.
        token: Token,
        /// It failed: leave the source alone for a while. `None` if it was only given up.
        back_off: Option<(Ttl, String)>,
    },
    /// What is stored is no longer true: from here on it is stale, and so is what loads under way will bring.
    Invalidate {
        /// Do not keep the stale value.
        remove: bool,
    },
}

/// What [`Step::Begin`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Fresh for each load, the same for each retry of it.
    pub token: Token,
    /// The highest version that the caller has seen; it is sent nothing older again.
    pub seen: Version,
    /// It wants something newer than that, even if that is fresh: to refresh early, or because it cannot read it.
    pub over: bool,
    /// The lease wanted.
    pub lease: Ttl,
    /// The client to be told when the load of another ends, if it listens.
    pub listener: Option<ClientId>,
}

/// What [`Step::Commit`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Whose load.
    pub token: Token,
    /// The version that it was granted.
    pub version: Version,
    /// How long the value is fresh, in milliseconds; with no time as stale either, zero is a value that is not stored.
    pub fresh_ms: u64,
    /// How long it is kept as stale after that, in milliseconds.
    pub stale_ms: u64,
    /// How long it took to load, in milliseconds.
    pub load_ms: u64,
    /// How it is written.
    pub format: Format,
    /// The value.
    pub body: Body,
}

/// What a step answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// There is a fresh value.
    Fresh(Value),
    /// The caller loads, and commits under this version.
    Load {
        /// The version of the load.
        version: Version,
        /// How many loads have failed in a row until now.
        failures: u32,
        /// A stale value that the caller has not seen.
        stale: Option<Value>,
    },
    /// Another loads.
    Busy {
        /// Ask again after this long, if nothing is heard before.
        poll_after: Duration,
        /// A stale value that the caller has not seen.
        stale: Option<Value>,
    },
    /// The last load failed, and nobody loads for a while.
    BackOff {
        /// For how long.
        left: Duration,
        /// What the failed load said.
        error: String,
        /// A stale value that the caller has not seen.
        stale: Option<Value>,
    },
    /// The lease is renewed.
    Renewed,
    /// The load has no lease: it ended, or the entry was invalidated. It may still commit.
    NotLoading,
    /// What a commit came to.
    Committed(CommitOutcome),
    /// The load was ended, or had been.
    Abandoned,
    /// The entry was invalidated.
    Invalidated,
    /// Something else stands under the key, of this Redis type; it was left alone (K8).
    Foreign(String),
}

/// What became of a committed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommitOutcome {
    /// It is stored, and fresh until this soft expiry, in milliseconds on the store's expiry clock.
    Fresh(u64),
    /// The entry was invalidated after the load began, or the store has forgotten whether it was: it is stored as stale, or not
    /// at all if stale values are not kept.
    Stale,
    /// Something newer is stored; it was dropped.
    Overtaken,
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to the one who asked.
    pub reply: Reply,
    /// The clients to tell that they should ask again (K5). A hint: they also poll.
    pub wakes: Vec<ClientId>,
}

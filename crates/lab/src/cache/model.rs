//! The cache models, by name: clients, times, faults, and the rules that are explored.
//!
//! Times are whole ticks of [`TICK`], the longest poll interval of a waiter.

use std::time::Duration;

use leasehold_core::cache::{Body, EntryState, Outcome, POLL, Step};
use leasehold_core::{Invalid, Now, Ttl};

use crate::frame::{Framed, SetupOf, Turn, millis, models, worded};

/// The rules of an entry: [`EntryState::apply`], or a broken version in a test.
pub type ApplyEntry = fn(&mut EntryState, Now, &Step) -> Outcome;

/// One tick.
pub(super) const TICK: Duration = POLL;
pub(super) const TICK_MS: u64 = millis(TICK);

/// How many ticks the lease of a load lasts.
pub(super) const LEASE: u8 = 2;
/// How many ticks a value is fresh.
pub(super) const FRESH: u8 = 2;
/// How many ticks it is kept as stale after that.
pub(super) const STALE: u8 = 1;
/// How many ticks the back-off after a failed load lasts.
pub(super) const BACK_OFF: u8 = 1;

worded! {
    /// Additional events. Clients always ask, load, renew and commit, and any may do nothing for as long as it likes, which covers
    /// slow loads and pauses.
    Fault {
        /// Not a fault: the entry is invalidated, with or without deleting its value.
        Invalidate => "invalidations, with and without the value",
        /// Not a fault: a client wants a newer value than the fresh one.
        Refresh => "clients that want it newer than what is fresh",
        /// A load may fail, or be given up.
        Fail => "loads that fail or are given up",
        /// A client may crash, or stop waiting.
        Crash => "crashes of clients",
        /// An answer may be lost.
        LostReply => "answers that are lost",
        /// A request may stay in the network, and be executed after its client went on, or never.
        LateRequest => "requests that come late or never",
        /// A request in flight may be executed twice.
        Twice => "requests that are carried out twice",
        /// The store may lose the control, once time has passed since its last number.
        LostControl => "losses of the control, some time after its last number",
        /// The store may lose the value.
        LostValue => "losses of the value",
        /// The wall clock may be set back, by more than any load takes. The expiry clock goes on.
        ClockBack => "steps back of the wall clock by more than any load takes",
    }
}

/// The bounds of a model that are numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) clients: u8,
    /// How many requests may be in flight at once.
    pub(super) in_flight: usize,
    /// How many ended calls the store or the network may still know when a new call begins.
    pub(super) left_over: usize,
}

/// A model without faults: only loads, slow loads and pauses.
const PLAIN: Limits = Limits {
    clients: 3,
    in_flight: 0,
    left_over: 1,
};

pub(super) const MODELS: &[SetupOf<GuardedEntry>] = models! {
    Limits, Fault, Situation, PLAIN;

    "cache" { clients: 4 }
        may []
        reaches [Fresh, Busy, TwoWait, StaleServed, Woken, Renewed, TakenOver, LateKept, Overtaken];

    "cache invalidation" {}
        may [Invalidate]
        reaches [InvalidatedDuringLoad, StoredAsStale, TakenOver, Woken, LateKept, StaleServed];

    "cache early refresh" {}
        may [Refresh, Invalidate]
        reaches [RefreshedEarly, Busy, Overtaken, StoredAsStale];

    "cache failing source" {}
        may [Fail, Invalidate]
        reaches [BackOff, BackOffEnded, Woken, StaleServed];

    "cache crash" {}
        may [Crash]
        reaches [CrashedLoading, Busy, TwoWait, TakenOver];

    "cache lost reply" {}
        may [LostReply, Invalidate, Fail]
        reaches [CommitUnheard, GrantUnheard, CommittedTwice, StoredAsStale];

    "cache delayed command" { clients: 2, in_flight: 1 }
        may [LateRequest, Twice, Invalidate]
        reaches [AppliedLate, CommittedTwice, LateKept, Overtaken, StoredAsStale];

    "cache eviction" {}
        may [LostControl, LostValue, Invalidate]
        reaches [ControlLost, ForgottenCommit, ValueLost, StoredAsStale];

    "cache clock set back" {}
        may [ClockBack, LostControl, LostValue, Invalidate]
        reaches [ClockSetBack, ControlLost, UnknownCommit, StoredAhead, StoredAsStale, Overtaken];
};

/// A situation that a model must reach. The exploration counts it, so a model that explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A client was answered with a fresh value.
    Fresh,
    /// A client was told that another client loads.
    Busy,
    /// Two clients were told so.
    TwoWait,
    /// A waiting client was sent a stale value.
    StaleServed,
    /// A waiting client was woken.
    Woken,
    /// A lease was renewed.
    Renewed,
    /// A load was granted while another client was still loading.
    TakenOver,
    /// A value was stored after the lease of its load had ended.
    LateKept,
    /// A value was dropped because a newer one was there.
    Overtaken,
    /// An entry was invalidated while a client loaded it.
    InvalidatedDuringLoad,
    /// A value was stored as stale because it may be outdated.
    StoredAsStale,
    /// A client was told that the last load failed.
    BackOff,
    /// A value ended a back-off.
    BackOffEnded,
    /// A client crashed while it loaded.
    CrashedLoading,
    /// The answer to a commit was lost.
    CommitUnheard,
    /// The grant of a load was lost.
    GrantUnheard,
    /// A request was executed for a client that had gone on.
    AppliedLate,
    /// A commit was executed twice.
    CommittedTwice,
    /// The control was lost while a client loaded.
    ControlLost,
    /// A load that the store had forgotten was committed when another had begun.
    ForgottenCommit,
    /// The value was lost while a client loaded a newer one.
    ValueLost,
    /// A client loads while the value is fresh.
    RefreshedEarly,
    /// The clock was set back while a client loaded.
    ClockSetBack,
    /// A load was committed under a number that the control never gave out.
    UnknownCommit,
    /// A load began without a control, and the stored version was ahead of the clock.
    StoredAhead,
}

/// One entry, and its rules.
#[derive(Debug, Clone)]
pub(super) struct GuardedEntry {
    pub(super) apply: ApplyEntry,
    pub(super) lease: Ttl,
    pub(super) back_off: Ttl,
    pub(super) body: Body,
}

pub(super) type CacheModel = Framed<GuardedEntry>;
pub(super) type CacheTurn<'a> = Turn<'a, GuardedEntry>;

impl GuardedEntry {
    pub(super) fn new(apply: ApplyEntry) -> Result<Self, Invalid> {
        Ok(Self {
            apply,
            lease: Ttl::new(TICK * u32::from(LEASE))?,
            back_off: Ttl::new(TICK * u32::from(BACK_OFF))?,
            body: Body::from([]),
        })
    }
}

/// So many ticks in milliseconds.
pub(super) fn ticks_ms(ticks: u8) -> u64 {
    u64::from(ticks) * TICK_MS
}

//! The parameters of a model: clients, times, faults.
//!
//! Times are whole ticks of [`TICK`], the longest poll interval of a waiter.

use std::time::Duration;

use leasehold_core::cache::POLL;

use crate::frame::faults;

/// One tick.
pub(super) const TICK: Duration = POLL;

/// How many ticks the lease of a load lasts.
pub(super) const LEASE: u8 = 2;
/// How many ticks a value is fresh.
pub(super) const FRESH: u8 = 2;
/// How many ticks it is kept as stale after that.
pub(super) const STALE: u8 = 1;
/// How many ticks the back-off after a failed load lasts.
pub(super) const BACK_OFF: u8 = 1;

faults! {
    /// Additional events. Clients always ask, load, renew and commit, and any may do nothing for as long as it likes, which covers
    /// slow loads and pauses.
    CacheFault {
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

/// One model: a name and its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheSetup {
    pub(super) name: &'static str,
    pub(super) clients: u8,
    /// How many requests may be in flight at once.
    pub(super) in_flight: usize,
    /// How many ended calls the store or the network may still know when a new call begins.
    pub(super) left_over: usize,
    pub(super) faults: &'static [CacheFault],
    /// The situations that must be reached; otherwise the model does not show what its name says.
    pub(super) reaches: &'static [CacheSituation],
}

impl CacheSetup {
    pub(super) fn may(&self, fault: CacheFault) -> bool {
        self.faults.contains(&fault)
    }

    /// The bounds, for people.
    pub(super) fn bounds(&self) -> String {
        let tick = TICK.as_millis();
        let faults = self.faults.iter().map(|fault| fault.words());
        let may_happen: Vec<_> = std::iter::once("pauses").chain(faults).collect();
        let of = |ticks: u8| u128::from(ticks) * tick;
        format!(
            "{} clients; any number of calls, retries, polls and renewals each, without an end; in ticks of {tick} ms: lease {} ms, \
             fresh for {} ms, then stale for {} ms, back-off {} ms; requests under way at most {}; no call begins while store and \
             network know of more than {} that are over; any number of times: {}",
            self.clients,
            of(LEASE),
            of(FRESH),
            of(STALE),
            of(BACK_OFF),
            self.in_flight,
            self.left_over,
            may_happen.join(", "),
        )
    }
}

/// A situation that a model must reach. The exploration counts it, so a model that explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheSituation {
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

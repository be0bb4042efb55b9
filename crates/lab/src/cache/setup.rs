//! What a model is made of: how many clients, which faults. Must never say what an entry is.
//!
//! Times are whole ticks of [`TICK`], which is as long as a waiter waits at most before it asks again.

use std::time::Duration;

use leasehold_core::cache::POLL;

/// One tick.
pub(super) const TICK: Duration = POLL;

/// How many ticks the lease of a load lasts.
pub(super) const LEASE: u8 = 2;
/// How many a value is fresh, and how many it is kept as stale after that.
pub(super) const FRESH: u8 = 2;
/// See [`FRESH`].
pub(super) const STALE: u8 = 1;
/// How many the source is left alone after a failed load.
pub(super) const BACK_OFF: u8 = 1;

/// What may happen, besides that clients ask, load, renew and commit, and that any may do nothing for as long as it likes, which
/// is what a slow load and a pause are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheFault {
    /// Not a fault: someone invalidates the entry, with or without its value.
    Invalidate,
    /// Nor this: a client wants it newer than what is fresh.
    Refresh,
    /// A load may fail, or be given up.
    Fail,
    /// A client may crash, or stop waiting.
    Crash,
    /// An answer may be lost.
    LostReply,
    /// A request may stay in the network, be carried out after its client went on, or never.
    LateRequest,
    /// A request that is under way may be carried out twice.
    Twice,
    /// The store may lose the control, once time has passed since its last number.
    LostControl,
    /// It may lose the value.
    LostValue,
    /// Its wall clock may be set back, by more than any load takes. The clock that judges expiry goes on.
    ClockBack,
}

impl CacheFault {
    /// It, any number of times, for people.
    const fn words(self) -> &'static str {
        match self {
            Self::Invalidate => "invalidations, with and without the value",
            Self::Refresh => "clients that want it newer than what is fresh",
            Self::Fail => "loads that fail or are given up",
            Self::Crash => "crashes of clients",
            Self::LostReply => "answers that are lost",
            Self::LateRequest => "requests that come late or never",
            Self::Twice => "requests that are carried out twice",
            Self::LostControl => "losses of the control, some time after its last number",
            Self::LostValue => "losses of the value",
            Self::ClockBack => "steps back of the wall clock by more than any load takes",
        }
    }
}

/// One model: a name and its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheSetup {
    pub(super) name: &'static str,
    pub(super) clients: u8,
    /// How many requests may be under way at once.
    pub(super) in_flight: usize,
    /// How many calls that are over may still be known to the store or the network when one begins.
    pub(super) left_over: usize,
    pub(super) faults: &'static [CacheFault],
    /// What has to be reached, or the model does not show what it is named after.
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

/// Something that a model is there to explore. That it was reached is counted, so that a model which explores nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheSituation {
    /// A client was answered with a fresh value.
    Fresh,
    /// A client was told that another loads.
    Busy,
    /// Two were told so.
    TwoWait,
    /// A client was told to wait, and was sent a stale value.
    StaleServed,
    /// One who waited was told to ask again.
    Woken,
    /// A lease was renewed.
    Renewed,
    /// A load was granted while another client was still at its own.
    TakenOver,
    /// A value was stored after the lease of its load had ended.
    LateKept,
    /// A value was dropped because a newer one was there.
    Overtaken,
    /// An entry was invalidated while a client loaded it.
    InvalidatedDuringLoad,
    /// A value was stored as stale because it may not be true any more.
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
    /// A request was carried out for a client that had gone on.
    AppliedLate,
    /// A commit was carried out twice.
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

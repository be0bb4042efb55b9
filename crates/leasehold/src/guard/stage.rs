//! The stages of a shared load, and the result of each stage for a waiter. A waiter never gets a value as fresh that may have been
//! invalidated before the waiter asked (G3).

use std::time::Duration;

use leasehold_core::cache::{CommitOutcome, Value, Version};

use super::answer::{Failure, Origin, Refusal};
use crate::clock::Moment;

/// A stage of a shared load.
#[derive(Debug, Clone, Default)]
pub(crate) enum LoadStage {
    /// It asks the store, or waits for another client's load.
    #[default]
    Asking,
    /// It asks or waits, and a stale value was found.
    Stale(StaleValue),
    /// The loader has returned, and the value is on its way to the store. The load began at this moment.
    Loaded(Value, Moment),
    /// The shared load is over.
    Ended(LoadOutcome),
}

/// A stale value, the time of the store, and when the request for it was sent. It is for callers that had asked by then. Later callers
/// have read the entry themselves, and a value that is gone since must not be served again.
#[derive(Debug, Clone)]
pub(crate) struct StaleValue {
    pub(crate) value: Value,
    pub(crate) now_ms: u64,
    pub(super) sent: Moment,
}

/// The outcome of a shared load.
#[derive(Debug, Clone)]
pub(crate) enum LoadOutcome {
    /// Another client's value, fresh at this time of the store. The request was sent at this moment.
    Found(Value, u64, Moment),
    /// A value that was loaded here.
    Loaded(Value, CommitReport),
    /// The loader had no value.
    Nothing,
    /// A load failed in this or another process. No caller loads until this moment.
    Failed(Failure, Moment),
    /// The store gave no answer.
    Refused(Refusal),
    /// No caller waited any more.
    Unwanted,
}

/// How a loaded value was committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitReport {
    /// When its load began.
    pub(crate) began: Moment,
    /// When it was sent to the store.
    pub(crate) sent: Moment,
    /// The store's answer, if there was one.
    pub(crate) kept: Option<CommitOutcome>,
}

impl LoadOutcome {
    /// The refusal for a caller that cannot take this outcome.
    pub(crate) fn refusal(self, now: Moment) -> Refusal {
        match self {
            Self::Failed(failure, until) => Refusal::Failed(failure, until.since(now)),
            Self::Refused(refusal) => refusal,
            Self::Nothing => Refusal::Nothing,
            Self::Found(..) | Self::Loaded(..) | Self::Unwanted => Refusal::GaveUp,
        }
    }
}

/// The values that a caller accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(crate) asked: Moment,
    /// The caller began this shared load.
    pub(crate) leads: bool,
    pub(crate) must_be_fresh: bool,
    /// A version that the caller could not decode. It does not take that stale value again.
    pub(crate) unread: Version,
}

/// The result of a stage for a caller.
#[derive(Debug, Clone)]
pub(super) enum WaitResult {
    Take {
        value: Value,
        age: Duration,
        origin: Origin,
    },
    /// The caller has to ask again.
    Again,
    Refuse(LoadOutcome),
}

impl Demand {
    /// `None` while the caller has to wait.
    pub(super) fn evaluate(&self, stage: &LoadStage) -> Option<WaitResult> {
        let take = |value: &Value, age, origin| WaitResult::Take {
            value: value.clone(),
            age,
            origin,
        };
        let loaded = if self.leads {
            Origin::Loaded
        } else {
            Origin::Waited
        };
        match stage {
            LoadStage::Stale(found)
                if !self.must_be_fresh
                    && found.sent >= self.asked
                    && found.value.header.version > self.unread =>
            {
                let StaleValue { value, now_ms, .. } = found;
                Some(take(value, value.header.age(*now_ms), Origin::Stale))
            }
            // A load that began after the question is as new as any answer can be (G3).
            LoadStage::Loaded(value, began) if *began >= self.asked => {
                Some(take(value, Duration::ZERO, loaded))
            }
            LoadStage::Asking | LoadStage::Stale(..) | LoadStage::Loaded(..) => None,
            LoadStage::Ended(end) => Some(match end {
                // A value read before the question may have been invalidated since (G3).
                LoadOutcome::Found(value, now_ms, sent) if *sent >= self.asked => {
                    take(value, value.header.age(*now_ms), Origin::Waited)
                }
                LoadOutcome::Loaded(value, report) => {
                    let is_kept = matches!(report.kept, Some(CommitOutcome::Fresh(_)));
                    if report.began >= self.asked || (is_kept && report.sent >= self.asked) {
                        take(value, Duration::ZERO, loaded)
                    } else if self.must_be_fresh {
                        WaitResult::Again
                    } else {
                        take(value, Duration::ZERO, Origin::Stale)
                    }
                }
                LoadOutcome::Found(..) | LoadOutcome::Unwanted => WaitResult::Again,
                // Another caller's runtime ended, so this caller asks again.
                LoadOutcome::Refused(Refusal::GaveUp) if !self.leads => WaitResult::Again,
                LoadOutcome::Nothing | LoadOutcome::Failed(..) | LoadOutcome::Refused(_) => {
                    WaitResult::Refuse(end.clone())
                }
            }),
        }
    }
}

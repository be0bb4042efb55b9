//! How far a shared load is, and what that is to whoever waits for it. Must never hand out as fresh what may have been invalidated before
//! it was asked for (G3).

use std::time::Duration;

use leasehold_core::cache::{CommitOutcome, Value, Version};

use super::answer::{Failure, Origin, Refusal};
use crate::clock::Moment;

/// How far a shared load is.
#[derive(Debug, Clone, Default)]
pub(crate) enum LoadStage {
    /// It asks the store, or waits for another's load.
    #[default]
    Asking,
    /// The same, and a stale value came to light.
    Stale(StaleValue),
    /// The loader has answered, and the value is on its way to the store. It began to load at this moment.
    Loaded(Value, Moment),
    /// It is over.
    Ended(LoadOutcome),
}

/// A stale value, the time of the store, and when that was asked: for whoever had asked by then. Later ones have looked for
/// themselves, and what is gone since is not to be served again.
#[derive(Debug, Clone)]
pub(crate) struct StaleValue {
    pub(crate) value: Value,
    pub(crate) now_ms: u64,
    pub(super) sent: Moment,
}

/// What a shared load came to.
#[derive(Debug, Clone)]
pub(crate) enum LoadOutcome {
    /// Another's value, fresh at this time of the store, which was asked at this moment.
    Found(Value, u64, Moment),
    /// A value that was loaded here.
    Loaded(Value, CommitReport),
    /// The loader had no value.
    Nothing,
    /// A load failed, here or elsewhere; until then nobody loads.
    Failed(Failure, Moment),
    /// The store did not say.
    Refused(Refusal),
    /// Nobody waited any more.
    Unwanted,
}

/// How a loaded value was handed in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitReport {
    /// When its load began.
    pub(crate) began: Moment,
    /// When it was sent to the store.
    pub(crate) sent: Moment,
    /// What the store made of it, if it said.
    pub(crate) kept: Option<CommitOutcome>,
}

impl LoadOutcome {
    /// What a caller is told that cannot take it.
    pub(crate) fn refusal(self, now: Moment) -> Refusal {
        match self {
            Self::Failed(failure, until) => Refusal::Failed(failure, until.since(now)),
            Self::Refused(refusal) => refusal,
            Self::Nothing => Refusal::Nothing,
            Self::Found(..) | Self::Loaded(..) | Self::Unwanted => Refusal::GaveUp,
        }
    }
}

/// What a caller takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(crate) asked: Moment,
    /// The shared load is its own.
    pub(crate) leads: bool,
    pub(crate) must_be_fresh: bool,
    /// A version that it could not read; a stale one is not taken again.
    pub(crate) unread: Version,
}

/// What a stage of a shared load is to a caller.
#[derive(Debug, Clone)]
pub(super) enum WaitResult {
    Take {
        value: Value,
        age: Duration,
        origin: Origin,
    },
    /// It has to ask again.
    Again,
    Refuse(LoadOutcome),
}

impl Demand {
    /// `None` while it has to wait on.
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
            // What began after the question is as new as any answer to it can be (G3).
            LoadStage::Loaded(value, began) if *began >= self.asked => {
                Some(take(value, Duration::ZERO, loaded))
            }
            LoadStage::Asking | LoadStage::Stale(..) | LoadStage::Loaded(..) => None,
            LoadStage::Ended(end) => Some(match end {
                // What the store said before the question may have been invalidated since (G3).
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
                // A caller's runtime is nobody else's.
                LoadOutcome::Refused(Refusal::GaveUp) if !self.leads => WaitResult::Again,
                LoadOutcome::Nothing | LoadOutcome::Failed(..) | LoadOutcome::Refused(_) => {
                    WaitResult::Refuse(end.clone())
                }
            }),
        }
    }
}

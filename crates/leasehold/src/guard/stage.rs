//! How far a flight is, and what that is to whoever waits for it. Must never hand out as fresh what may have been invalidated before
//! it was asked for (G3).

use std::time::Duration;

use leasehold_core::cache::{CommitOutcome, Value, Version};

use super::answer::{Failure, Origin, Refusal};
use crate::clock::Moment;

/// How far a flight is.
#[derive(Debug, Clone, Default)]
pub(crate) enum Stage {
    /// It asks the store, or waits for another's load.
    #[default]
    Asking,
    /// The same, and a stale value came to light.
    Stale(Shown),
    /// The loader has answered, and the value is on its way to the store. It began to load at this moment.
    Loaded(Value, Moment),
    /// It is over.
    Ended(End),
}

/// A stale value, the time of the store, and when that was asked: for whoever had asked by then. Later ones have looked for
/// themselves, and what is gone since is not to be served again.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) value: Value,
    pub(crate) now_ms: u64,
    pub(super) sent: Moment,
}

/// What a flight came to.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// Another's value, fresh at this time of the store, which was asked at this moment.
    Found(Value, u64, Moment),
    /// A value that was loaded here.
    Loaded(Value, Handed),
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
pub(crate) struct Handed {
    /// When its load began.
    pub(crate) began: Moment,
    /// When it was sent to the store.
    pub(crate) sent: Moment,
    /// What the store made of it, if it said.
    pub(crate) kept: Option<CommitOutcome>,
}

impl End {
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
pub(super) struct Want {
    pub(crate) asked: Moment,
    /// The flight is its own.
    pub(crate) leads: bool,
    pub(crate) must_be_fresh: bool,
    /// A version that it could not read; a stale one is not taken again.
    pub(crate) unread: Version,
}

/// What a stage of a flight is to a caller.
#[derive(Debug, Clone)]
pub(super) enum Judged {
    Take {
        value: Value,
        age: Duration,
        origin: Origin,
    },
    /// It has to ask again.
    Again,
    Refuse(End),
}

impl Want {
    /// `None` while it has to wait on.
    pub(super) fn judge(&self, stage: &Stage) -> Option<Judged> {
        let take = |value: &Value, age, origin| Judged::Take {
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
            Stage::Stale(shown)
                if !self.must_be_fresh
                    && shown.sent >= self.asked
                    && shown.value.header.version > self.unread =>
            {
                let Shown { value, now_ms, .. } = shown;
                Some(take(value, value.header.age(*now_ms), Origin::Stale))
            }
            // What began after the question is as new as any answer to it can be (G3).
            Stage::Loaded(value, began) if *began >= self.asked => {
                Some(take(value, Duration::ZERO, loaded))
            }
            Stage::Asking | Stage::Stale(..) | Stage::Loaded(..) => None,
            Stage::Ended(end) => Some(match end {
                // What the store said before the question may have been invalidated since (G3).
                End::Found(value, now_ms, sent) if *sent >= self.asked => {
                    take(value, value.header.age(*now_ms), Origin::Waited)
                }
                End::Loaded(value, handed) => {
                    let is_kept = matches!(handed.kept, Some(CommitOutcome::Fresh(_)));
                    if handed.began >= self.asked || (is_kept && handed.sent >= self.asked) {
                        take(value, Duration::ZERO, loaded)
                    } else if self.must_be_fresh {
                        Judged::Again
                    } else {
                        take(value, Duration::ZERO, Origin::Stale)
                    }
                }
                End::Found(..) | End::Unwanted => Judged::Again,
                // A caller's runtime is nobody else's.
                End::Refused(Refusal::GaveUp) if !self.leads => Judged::Again,
                End::Nothing | End::Failed(..) | End::Refused(_) => Judged::Refuse(end.clone()),
            }),
        }
    }
}

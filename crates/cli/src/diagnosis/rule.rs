//! The form of a check, and of its outcome.

use std::time::Duration;

use super::report::{Finding, State};
use leasehold::doctor::ServerFacts;

/// A check.
pub(super) struct Rule {
    /// As in `docs/reference/doctor.md`.
    pub(super) id: &'static str,
    /// `None` where it does not apply.
    pub(super) judge: fn(&ServerFacts) -> Option<Judgement>,
}

/// The outcome of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) efficiency: State,
    pub(super) correctness: State,
    pub(super) text: String,
    pub(super) remedy: String,
}

impl Judgement {
    /// The state for locks that save work, and that for locks that prevent damage.
    pub(super) fn of(efficiency: State, correctness: State, text: impl Into<String>) -> Self {
        Self {
            efficiency,
            correctness,
            text: text.into(),
            remedy: String::new(),
        }
    }

    pub(super) fn ok(text: impl Into<String>) -> Self {
        Self::of(State::Ok, State::Ok, text)
    }

    pub(super) fn info(text: impl Into<String>) -> Self {
        Self::of(State::Info, State::Info, text)
    }

    /// The server does not say, or this user may not ask.
    pub(super) fn unknown(text: impl Into<String>) -> Self {
        Self::of(State::Unknown, State::Unknown, text)
    }

    pub(super) fn warn(text: impl Into<String>) -> Self {
        Self::of(State::Warn, State::Warn, text)
    }

    pub(super) fn fail(text: impl Into<String>) -> Self {
        Self::of(State::Fail, State::Fail, text)
    }

    /// This verdict as the finding of a check.
    pub(super) fn of_check(self, id: &'static str) -> Finding {
        Finding {
            id,
            efficiency: self.efficiency,
            correctness: self.correctness,
            text: self.text,
            remedy: self.remedy,
        }
    }

    pub(super) fn fix(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }
}

/// The verdict of a check that needs `INFO`, without it.
pub(super) fn no_info() -> Judgement {
    Judgement::unknown("INFO is not permitted here").fix("allow +info to this user")
}

/// A share of the TTL.
pub(super) fn share(facts: &ServerFacts, of: u32) -> Duration {
    facts.ttl / of
}

//! What facts mean for locks: one table, judged without any I/O. Must never fail a server for what it does not tell.

#![allow(
    clippy::unnecessary_wraps,
    reason = "a rule that always applies has the form of all others"
)]

mod access;
mod durability;
mod host;
mod keys;
mod memory;
mod reach;
mod replication;

use std::time::Duration;

use super::facts::Facts;
use crate::doctor::{Finding, State};

/// A check.
struct Rule {
    /// As in `docs/doctor.md`.
    id: &'static str,
    /// `None` where it does not apply.
    judge: fn(&Facts) -> Option<Verdict>,
}

/// What a check comes to.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    efficiency: State,
    correctness: State,
    text: String,
    remedy: String,
}

impl Verdict {
    /// The state for locks that save work, and that for locks that prevent damage.
    fn of(efficiency: State, correctness: State, text: impl Into<String>) -> Self {
        Self {
            efficiency,
            correctness,
            text: text.into(),
            remedy: String::new(),
        }
    }

    fn ok(text: impl Into<String>) -> Self {
        Self::of(State::Ok, State::Ok, text)
    }

    fn info(text: impl Into<String>) -> Self {
        Self::of(State::Info, State::Info, text)
    }

    /// The server does not say.
    fn unknown(text: impl Into<String>) -> Self {
        Self::of(State::Unknown, State::Unknown, text)
    }

    fn warn(text: impl Into<String>) -> Self {
        Self::of(State::Warn, State::Warn, text)
    }

    fn fail(text: impl Into<String>) -> Self {
        Self::of(State::Fail, State::Fail, text)
    }

    fn fix(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }
}

/// What is unknown without INFO.
fn no_info() -> Verdict {
    Verdict::unknown("INFO is not permitted here").fix("allow +info to this user")
}

/// A share of the TTL.
fn share(facts: &Facts, of: u32) -> Duration {
    facts.ttl / of
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    [
        reach::RULES,
        memory::RULES,
        durability::RULES,
        replication::RULES,
        access::RULES,
        host::RULES,
        keys::RULES,
    ]
    .into_iter()
    .flatten()
}

/// All that can be said of the server.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    rules()
        .filter_map(|rule| {
            let verdict = (rule.judge)(facts)?;
            Some(Finding {
                id: rule.id,
                efficiency: verdict.efficiency,
                correctness: verdict.correctness,
                text: verdict.text,
                remedy: verdict.remedy,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;

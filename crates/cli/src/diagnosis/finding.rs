//! The form of a check, and of what it finds.

use clap::ValueEnum;
use serde::Serialize;

/// The use of the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Purpose {
    /// Double work is a cost
    Efficiency,
    /// Double work is damage
    Correctness,
}

/// The result of one check, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// In order.
    Ok,
    /// Worth knowing.
    Info,
    /// The store does not say, or this user may not ask. Never a failure.
    Unknown,
    /// Locks work, and will cause trouble some day.
    Warn,
    /// Locks do not work here, or do not serve their purpose.
    Fail,
}

impl State {
    /// The best first.
    pub(crate) const ALL: [Self; 5] = [Self::Ok, Self::Info, Self::Unknown, Self::Warn, Self::Fail];
}

/// The outcome of one check, as `leasehold doctor --json` writes it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The check, as in `docs/reference/doctor.md`.
    pub(crate) id: &'static str,
    /// The state for the purpose of the locks.
    pub(crate) state: State,
    /// The state for locks that save work.
    pub(crate) efficiency: State,
    /// The state for locks that prevent damage.
    pub(crate) correctness: State,
    /// The observation and its consequence.
    pub(crate) text: String,
    /// The advice, if there is something to do.
    pub(crate) remedy: Option<String>,
}

/// The verdict of a rule.
pub(super) type Judged = Result<Finding, Unjudged>;

/// Why a rule has no verdict.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unjudged {
    /// The check does not apply to this store, or its measurement was left out.
    NotApplicable,
    /// The store does not tell what the verdict depends on: the words for it, and the advice. A rule cannot make a failure of this.
    Unknown(&'static str, Option<&'static str>),
}

/// The state for locks that save work, and that for locks that prevent damage.
pub(super) type Grade = (State, State);

/// In order.
pub(super) const OK: Grade = (State::Ok, State::Ok);
/// Worth knowing.
pub(super) const INFO: Grade = (State::Info, State::Info);
/// Worth knowing; trouble for locks that prevent damage.
pub(super) const HINT: Grade = (State::Info, State::Warn);
/// Locks work, and will cause trouble some day.
pub(super) const WARN: Grade = (State::Warn, State::Warn);
/// Trouble some day; locks that prevent damage do not serve their purpose.
pub(super) const RISK: Grade = (State::Warn, State::Fail);
/// Locks do not work here.
pub(super) const FAIL: Grade = (State::Fail, State::Fail);

/// A finding for locks that save work; [`Rule::finding`] adds what a rule does not know. What is in order needs no advice.
pub(super) fn graded(grade: Grade, text: impl Into<String>, fix: impl Into<String>) -> Judged {
    let fix = Some(fix.into()).filter(|fix| grade != OK && !fix.is_empty());
    Ok(finding(grade, text, fix))
}

fn finding(
    (efficiency, correctness): Grade,
    text: impl Into<String>,
    remedy: Option<String>,
) -> Finding {
    Finding {
        id: "",
        state: efficiency,
        efficiency,
        correctness,
        text: text.into(),
        remedy,
    }
}

/// In order.
pub(super) fn ok(text: impl Into<String>) -> Judged {
    graded(OK, text, "")
}

/// Worth knowing, and nothing can be done.
pub(super) fn info(text: impl Into<String>) -> Judged {
    graded(INFO, text, "")
}

/// A check of the stores that have facts of one kind: a row of a table.
pub(super) struct Rule<F> {
    /// As in `docs/reference/doctor.md`.
    pub(super) id: &'static str,
    /// The rule. It does no I/O.
    judge: fn(&F) -> Judged,
}

/// A row of a table.
pub(super) const fn rule<F>(id: &'static str, judge: fn(&F) -> Judged) -> Rule<F> {
    Rule { id, judge }
}

impl<F> Rule<F> {
    /// The finding for locks of this purpose; `None` where the check does not apply.
    pub(super) fn finding(&self, facts: &F, purpose: Purpose) -> Option<Finding> {
        let mut found = match (self.judge)(facts) {
            Ok(found) => found,
            Err(Unjudged::NotApplicable) => return None,
            Err(Unjudged::Unknown(text, remedy)) => {
                let remedy = remedy.map(str::to_owned);
                finding((State::Unknown, State::Unknown), text, remedy)
            }
        };
        found.id = self.id;
        if purpose == Purpose::Correctness {
            found.state = found.correctness;
        }
        Some(found)
    }
}

//! A rung with its model's result, in the form that all outputs share.

use crate::ladder::check::RungResult;
use crate::ladder::redis::Tick;
use crate::ladder::rungs::Rung;
use crate::ladder::trace::Trace;
use crate::report::Checked;

/// A rung with its model's result.
#[derive(Debug, Clone, Copy)]
pub struct RungSummary<'a> {
    /// The name on the command line: `set-ex-del`.
    pub name: &'a str,
    /// Its place on the ladder: `P4`.
    pub step: &'a str,
    /// The recipe in one line, as people write it.
    pub recipe: &'a str,
    /// The cause of its failure, in one sentence; for a rung without a violation, why it holds.
    pub why: &'a str,
    /// What the next rung changes, in one sentence.
    pub next: &'a str,
    /// How far the clock of each client is ahead.
    pub ahead: &'a [Tick],
    /// The model's result.
    pub outcome: ModelOutcome<'a>,
}

impl<'a> RungSummary<'a> {
    /// The summary of a rung.
    pub fn of(rung: &'a Rung, found: &'a RungResult) -> Self {
        Self {
            name: rung.name,
            step: rung.number,
            recipe: rung.recipe,
            why: rung.why,
            next: rung.next,
            ahead: &rung.skew,
            outcome: match found {
                RungResult::Broken(_, trace) => ModelOutcome::Broken(trace),
                RungResult::Explored(checked) if checked.is_exhausted() => {
                    ModelOutcome::Exhausted(checked)
                }
                RungResult::Explored(checked) => ModelOutcome::Unsettled(checked),
            },
        }
    }

    /// How far the clock of a client is ahead, if it is.
    pub(super) fn ahead_of(&self, client: u8) -> Option<Tick> {
        self.ahead
            .get(usize::from(client))
            .copied()
            .filter(|ahead| *ahead != 0)
    }
}

/// The result of a rung's model.
#[derive(Debug, Clone, Copy)]
pub enum ModelOutcome<'a> {
    /// The shortest trace to a violation.
    Broken(&'a Trace),
    /// No violation within these bounds.
    Exhausted(&'a Checked),
    /// Not the stated violation, but the exploration was cut, or another property is violated.
    Unsettled(&'a Checked),
}

//! The result of a model check: each property is *exhausted* within stated bounds, or violated, or the exploration was cut
//! short.

use std::time::Duration;

/// The result of exploring one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub model: String,
    /// Its bounds: clients, faults, times.
    pub bounds: String,
    /// The number of different states.
    pub states: usize,
    /// The number of steps of the longest path by which a state was first reached. With two threads that is not always the
    /// shortest path, so this differs from run to run.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The properties.
    pub properties: Vec<Judged>,
}

impl Checked {
    /// Whether no property was violated and nothing was cut.
    pub fn is_exhausted(&self) -> bool {
        let mut properties = self.properties.iter();
        properties.all(|judged| judged.verdict == Verdict::Exhausted)
    }
}

/// The result of exploring one model, which has to reach situations `S`.
#[derive(Debug, Clone)]
pub struct Finding<S> {
    /// The verdicts.
    pub checked: Checked,
    /// The situations that this model must reach and did not. If there are any, its verdicts are worth little.
    pub missed: Vec<S>,
}

/// One property of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Its name: `exclusion`, `R4`.
    pub name: &'static str,
    /// Its meaning, in a sentence.
    pub says: &'static str,
    /// Its verdict.
    pub verdict: Verdict,
}

/// The verdict on a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It held in every state within the bounds.
    Exhausted,
    /// It is violated.
    Violated {
        /// The number of steps to the violation.
        steps: usize,
        /// These steps, a line each.
        trace: Vec<String>,
    },
    /// It held in all explored states, but the exploration was cut by a limit on states or time, or by another violation.
    Cut,
}

//! What a check of a model found. Must never claim more than was explored: a property is *exhausted* within stated
//! bounds, or violated, or the exploration was cut short.

use std::time::Duration;

/// One model, explored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub model: String,
    /// What was explored: how many clients, which faults, how long.
    pub bounds: String,
    /// How many different states were seen.
    pub states: usize,
    /// How many steps the longest way took by which a state was first reached. With two threads it is not always the shortest
    /// way, so this differs from run to run.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What was asked of each state.
    pub properties: Vec<Judged>,
}

impl Checked {
    /// Whether nothing at all went wrong in what was explored, and nothing was left out.
    pub fn is_exhausted(&self) -> bool {
        let mut properties = self.properties.iter();
        properties.all(|judged| judged.verdict == Verdict::Exhausted)
    }
}

/// One property of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Its name: `exclusion`, `R4`.
    pub name: &'static str,
    /// What it says, in a sentence.
    pub says: &'static str,
    /// What became of it.
    pub verdict: Verdict,
}

/// What the exploration says of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every state within the bounds was seen, and it held in each.
    Exhausted,
    /// It does not hold.
    Violated {
        /// How many steps lead there.
        steps: usize,
        /// These steps, a line each.
        trace: Vec<String>,
    },
    /// It held in what was seen, but a limit on states or time was hit, or another property failed, before all was.
    Cut,
}

//! The verb `check`: explores all models to the end of their bounds. A model that missed one of its situations fails.

use std::fmt::{Debug, Write as _};

use clap::Args;
use leasehold_core::cache::EntryState;
use leasehold_core::{Invalid, World};

use crate::cache;
use crate::check_table;
use crate::ladder::check::check_rung;
use crate::ladder::rungs;
use crate::output::{CommandError, CommandOutput, Terminal};
use crate::quorum::{self, QuorumRules};
use crate::report::{Checked, Finding, Verdict};
use crate::rules;

/// Explore all models, the recipes' and our own, to the end of their bounds
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Only models whose name contains this
    #[arg(value_name = "MODEL")]
    only: Vec<String>,

    /// Look further: minutes instead of seconds, and some gigabytes of memory
    #[arg(long)]
    deep: bool,

    /// Print the steps that lead to each violation as well
    #[arg(long)]
    traces: bool,
}

impl Check {
    pub(super) fn run(
        &self,
        json: bool,
        terminal: &Terminal,
    ) -> Result<CommandOutput, CommandError> {
        let (recipes, mut fine) = self.recipes(terminal);
        let (ours, ours_fine, missed) = self.ours(terminal)?;
        fine &= ours_fine;
        let all: Vec<Checked> = recipes.into_iter().chain(ours).collect();
        if all.is_empty() {
            let why = format!("no model is called like {:?}", self.only);
            return Err(CommandError::Usage(format!(
                "{why}\n    next    leasehold-lab check"
            )));
        }
        let text = if json {
            check_table::json(&all)
        } else {
            check_table::table(&all, self.traces, terminal.colour) + &missed
        };
        Ok(CommandOutput { text, fine })
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// The ladder: passes if each rung violates its stated property, or none if it states none.
    fn recipes(&self, terminal: &Terminal) -> (Vec<Checked>, bool) {
        let mut all = Vec::new();
        let mut fine = true;
        for &rung in rungs::all().iter().filter(|rung| self.wants(rung.name)) {
            (terminal.progress)(rung.name);
            let bounds = if self.deep { rung.deep } else { rung.bounds };
            let checked = check_rung(rung, bounds);
            fine &= match rung.breaks {
                None => checked.is_exhausted(),
                Some(known) => checked.properties.iter().any(|judged| {
                    judged.name == known.name()
                        && matches!(judged.verdict, Verdict::Violated { .. })
                }),
            };
            all.push(checked);
        }
        (all, fine)
    }

    /// The lock, cache and quorum models: pass if all is exhausted and each model reached its situations. Missed ones are named.
    fn ours(&self, terminal: &Terminal) -> Result<(Vec<Checked>, bool, String), CommandError> {
        let bounds = if self.deep {
            rules::Bounds::Deep
        } else {
            rules::Bounds::Ci
        };
        let (mut all, mut missed) = (Vec::new(), String::new());
        let into = &mut (&mut all, &mut missed);
        self.add(into, terminal, rules::names(bounds), |name| {
            rules::check_one(bounds, name, World::apply)
        })?;
        self.add(into, terminal, cache::names(bounds), |name| {
            cache::check_one(bounds, name, EntryState::apply)
        })?;
        self.add(into, terminal, quorum::names(bounds), |name| {
            quorum::check_one(bounds, name, QuorumRules::SOUND)
        })?;
        let fine = missed.is_empty() && all.iter().all(Checked::is_exhausted);
        Ok((all, fine, missed))
    }

    /// Explores those of these models that are wanted. Adds their verdicts, and a line for each situation that one missed.
    fn add<S: Debug>(
        &self,
        (all, missed): &mut (&mut Vec<Checked>, &mut String),
        terminal: &Terminal,
        names: Vec<&'static str>,
        check_one: impl Fn(&str) -> Result<Finding<S>, Invalid>,
    ) -> Result<(), CommandError> {
        for name in names.into_iter().filter(|name| self.wants(name)) {
            (terminal.progress)(name);
            let found = check_one(name);
            let found = found.map_err(|invalid| CommandError::Failed(invalid.to_string()))?;
            for situation in found.missed {
                // Writing to a String cannot fail.
                let _infallible = writeln!(missed, "{name} never reached: {situation:?}");
            }
            all.push(found.checked);
        }
        Ok(())
    }
}

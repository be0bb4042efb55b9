//! The verb `check`: all models, to the end of their bounds. Must never call a model fine that did not reach what it is there
//! to explore.

use std::fmt::Write as _;

use clap::Args;

use super::{Asked, Refused, Said};
use crate::check_table;
use crate::ladder::check::check_rung;
use crate::ladder::rungs;
use crate::report::{Checked, Verdict};
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
    pub(super) fn run(&self, json: bool, asked: &Asked) -> Result<Said, Refused> {
        let (recipes, mut fine) = self.recipes(asked);
        let (ours, ours_fine, missed) = self.ours(asked)?;
        fine &= ours_fine;
        let all: Vec<Checked> = recipes.into_iter().chain(ours).collect();
        if all.is_empty() {
            let why = format!("no model is called like {:?}", self.only);
            return Err(Refused::Usage(format!(
                "{why}\n    next    leasehold lab check"
            )));
        }
        let text = if json {
            check_table::json(&all)
        } else {
            check_table::table(&all, self.traces, asked.colour) + &missed
        };
        Ok(Said { text, fine })
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// The ladder: fine when each rung breaks what it is known for, or nothing if it is known for nothing.
    fn recipes(&self, asked: &Asked) -> (Vec<Checked>, bool) {
        let mut all = Vec::new();
        let mut fine = true;
        for &rung in rungs::all().iter().filter(|rung| self.wants(rung.name)) {
            (asked.progress)(rung.name);
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

    /// Our own rules: fine when all is exhausted and each model reached what it is named after. What was missed is said.
    fn ours(&self, asked: &Asked) -> Result<(Vec<Checked>, bool, String), Refused> {
        let bounds = if self.deep {
            rules::Bounds::Deep
        } else {
            rules::Bounds::Ci
        };
        let mut all = Vec::new();
        let mut missed = String::new();
        for name in rules::names(bounds) {
            if !self.wants(name) {
                continue;
            }
            (asked.progress)(name);
            let found = rules::check_one(bounds, name, leasehold_core::World::apply)
                .map_err(|invalid| Refused::Failed(invalid.to_string()))?;
            for situation in &found.missed {
                // A string takes all that is written to it.
                let _infallible = writeln!(missed, "{name} never reached: {situation:?}");
            }
            all.push(found.checked);
        }
        let fine = missed.is_empty() && all.iter().all(Checked::is_exhausted);
        Ok((all, fine, missed))
    }
}

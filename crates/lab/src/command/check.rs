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

/// A verdict, and the situations that the model missed.
type Told = (Checked, Vec<String>);

/// Explores the model of a name.
type Explore<'a> = &'a dyn Fn(&str) -> Result<Told, Invalid>;

fn told<S: Debug>(found: Finding<S>) -> Told {
    let missed = found.missed.iter();
    let missed = missed.map(|situation| format!("{situation:?}")).collect();
    (found.checked, missed)
}

impl Check {
    pub(super) fn run(
        &self,
        json: bool,
        terminal: &Terminal,
    ) -> Result<CommandOutput, CommandError> {
        let (mut all, mut fine) = self.recipes(terminal);
        let (ours, missed) = self.ours(terminal)?;
        fine &= missed.is_empty() && ours.iter().all(Checked::is_exhausted);
        all.extend(ours);
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
    fn ours(&self, terminal: &Terminal) -> Result<(Vec<Checked>, String), CommandError> {
        let bounds = if self.deep {
            rules::Bounds::Deep
        } else {
            rules::Bounds::Ci
        };
        let lock = |name: &str| rules::check_one(bounds, name, World::apply).map(told);
        let entry = |name: &str| cache::check_one(bounds, name, EntryState::apply).map(told);
        let quorum = |name: &str| quorum::check_one(bounds, name, QuorumRules::SOUND).map(told);
        let families: [(_, Explore); 3] = [
            (rules::names(bounds), &lock),
            (cache::names(bounds), &entry),
            (quorum::names(bounds), &quorum),
        ];
        let (mut all, mut missed) = (Vec::new(), String::new());
        for (names, explore) in families {
            for name in names.into_iter().filter(|name| self.wants(name)) {
                (terminal.progress)(name);
                let found = explore(name).map_err(|invalid| invalid.to_string())?;
                for situation in found.1 {
                    // Writing to a String cannot fail.
                    let _infallible = writeln!(missed, "{name} never reached: {situation}");
                }
                all.push(found.0);
            }
        }
        Ok((all, missed))
    }
}

//! The verbs of the ladder: the list, `show`, `replay`, `race`. All verdicts come from a fresh exploration.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::save::save;
use crate::ladder::check::{RungResult, find_out};
use crate::ladder::race::{self, RaceArgs, Raced};
use crate::ladder::replay::{self, ReplayArgs};
use crate::ladder::rungs::{self, Rung};
use crate::ladder::show::{self, RungSummary};
use crate::output::{CommandError, CommandOutput, Terminal};
use crate::text::json_line;

/// Print the shortest story in which a recipe goes wrong
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Which rung: `leasehold lab` lists them
    rung: String,

    /// Draw it into this file as well, a lane for each client
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// All rungs, with the results of their models.
pub(super) fn list(json: bool, terminal: &Terminal) -> CommandOutput {
    let explored: Vec<(&Rung, RungResult)> = rungs::all()
        .iter()
        .map(|&rung| (rung, find_out(rung)))
        .collect();
    let told: Vec<RungSummary> = explored
        .iter()
        .map(|(rung, found)| RungSummary::of(rung, found))
        .collect();
    CommandOutput::fine(if json {
        show::list_json(&told)
    } else {
        show::list(&told, terminal.colour)
    })
}

impl Show {
    pub(super) fn run(
        &self,
        json: bool,
        terminal: &Terminal,
    ) -> Result<CommandOutput, CommandError> {
        let rung = find(&self.rung)?;
        let found = find_out(rung);
        let told = RungSummary::of(rung, &found);
        if let Some(path) = &self.svg {
            let picture = show::svg(&told).ok_or_else(|| {
                let name = told.name;
                CommandError::Usage(format!(
                    "{name} has no story to draw: nothing was found within its bounds"
                ))
            })?;
            save(path, &picture)?;
        }
        Ok(CommandOutput::fine(if json {
            show::json(&told)
        } else {
            show::table(&told, terminal.colour)
        }))
    }
}

/// Plays the story of a rung on real servers.
pub(super) fn replay(args: &ReplayArgs, json: bool) -> Result<CommandOutput, CommandError> {
    let name = &args.rung;
    let RungResult::Broken(_, trace) = find_out(find(name)?) else {
        return Err(CommandError::Usage(format!(
            "{name} has no story to replay: nothing was found within its bounds\n    next    leasehold lab race {name}",
        )));
    };
    let replayed = replay::replay(&trace, &args.place(), args.tick)?;
    let text = if json {
        json_line("leasehold.lab-replay/1", &replayed)
    } else {
        replayed.to_string()
    };
    let fine = replayed.verdict == replay::ReplayVerdict::Reproduced;
    Ok(CommandOutput { text, fine })
}

/// Races the named rungs, or all.
pub(super) fn race(
    args: &RaceArgs,
    json: bool,
    terminal: &Terminal,
) -> Result<CommandOutput, CommandError> {
    let mut races = Vec::new();
    for rung in args
        .rungs()
        .map_err(|why| CommandError::Usage(hint(&why)))?
    {
        (terminal.progress)(&format!("{} is racing", rung.name));
        races.push(race::race(rung, &args.settings())?);
    }
    let text = if json {
        json_line("leasehold.lab-race/1", &Races { races: &races })
    } else {
        race::table(&races)
    };
    let fine = !races.iter().any(Raced::contradicts_the_model);
    Ok(CommandOutput { text, fine })
}

/// The races' output for programs.
#[derive(Serialize)]
struct Races<'a> {
    races: &'a [Raced],
}

fn find(name: &str) -> Result<&'static Rung, CommandError> {
    rungs::find(name)
        .ok_or_else(|| CommandError::Usage(hint(&format!("there is no rung {name:?}"))))
}

fn hint(why: &str) -> String {
    format!("{why}\n    next    leasehold lab")
}

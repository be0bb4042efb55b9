//! The verbs about the ladder: the list, `show`, `replay`, `race`. Must never know a verdict that no model has just found.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::save::save;
use crate::ladder::check::{Found, find_out};
use crate::ladder::race::{self, RaceArgs, Raced};
use crate::ladder::replay::{self, ReplayArgs};
use crate::ladder::rungs::{self, Rung};
use crate::ladder::show::{self, Told};
use crate::said::{Asked, Refused, Said};
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

/// All rungs, and what their models have just found.
pub(super) fn list(json: bool, asked: &Asked) -> Said {
    let explored: Vec<(&Rung, Found)> = rungs::all()
        .iter()
        .map(|&rung| (rung, find_out(rung)))
        .collect();
    let told: Vec<Told> = explored
        .iter()
        .map(|(rung, found)| Told::of(rung, found))
        .collect();
    Said::fine(if json {
        show::list_json(&told)
    } else {
        show::list(&told, asked.colour)
    })
}

impl Show {
    pub(super) fn run(&self, json: bool, asked: &Asked) -> Result<Said, Refused> {
        let rung = find(&self.rung)?;
        let found = find_out(rung);
        let told = Told::of(rung, &found);
        if let Some(path) = &self.svg {
            let picture = show::svg(&told).ok_or_else(|| {
                let name = told.name;
                Refused::Usage(format!(
                    "{name} has no story to draw: nothing was found within its bounds"
                ))
            })?;
            save(path, &picture)?;
        }
        Ok(Said::fine(if json {
            show::json(&told)
        } else {
            show::table(&told, asked.colour)
        }))
    }
}

/// Plays the story of a rung on real servers.
pub(super) fn replay(args: &ReplayArgs, json: bool) -> Result<Said, Refused> {
    let name = &args.rung;
    let Found::Broken(_, trace) = find_out(find(name)?) else {
        return Err(Refused::Usage(format!(
            "{name} has no story to replay: nothing was found within its bounds\n    next    leasehold lab race {name}",
        )));
    };
    let replayed = replay::replay(&trace, &args.place(), args.tick)?;
    let text = if json {
        json_line("leasehold.lab-replay/1", &replayed)
    } else {
        replayed.to_string()
    };
    let fine = replayed.verdict == replay::Verdict::Reproduced;
    Ok(Said { text, fine })
}

/// Races the rungs that were named, or all.
pub(super) fn race(args: &RaceArgs, json: bool, asked: &Asked) -> Result<Said, Refused> {
    let mut races = Vec::new();
    for rung in args.rungs().map_err(|why| Refused::Usage(hint(&why)))? {
        (asked.progress)(&format!("{} is racing", rung.name));
        races.push(race::race(rung, &args.settings())?);
    }
    let text = if json {
        json_line("leasehold.lab-race/1", &Races { races: &races })
    } else {
        race::table(&races)
    };
    let fine = !races.iter().any(Raced::contradicts_the_model);
    Ok(Said { text, fine })
}

/// What is printed of races for programs.
#[derive(Serialize)]
struct Races<'a> {
    races: &'a [Raced],
}

fn find(name: &str) -> Result<&'static Rung, Refused> {
    rungs::find(name).ok_or_else(|| Refused::Usage(hint(&format!("there is no rung {name:?}"))))
}

fn hint(why: &str) -> String {
    format!("{why}\n    next    leasehold lab")
}

//! The verbs of the ladder: the list, `show`, `replay`. All verdicts come from a fresh exploration.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::ladder::check::{RungResult, find_out};
use crate::ladder::replay::{ReplayVerdict, replay};
use crate::ladder::rungs::{self, Rung};
use crate::ladder::show;
use crate::output::{CommandError, CommandOutput, Terminal};
use crate::text::json_line;

/// Print the shortest story in which a recipe goes wrong
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Which rung: `leasehold-lab` lists them
    rung: String,

    /// Draw it into this file as well, a lane for each client
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// All rungs, with the results of their models.
pub(super) fn list(json: bool, terminal: &Terminal) -> CommandOutput {
    let all = rungs::all().iter();
    let found: Vec<(&Rung, RungResult)> = all.map(|&rung| (rung, find_out(rung))).collect();
    CommandOutput::fine(if json {
        show::list_json(&found)
    } else {
        show::list(&found, terminal.colour)
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
        if let Some(path) = &self.svg {
            let RungResult::Broken(trace) = &found else {
                return Err(CommandError::Usage(format!(
                    "{} has no story to draw: nothing was found within its bounds",
                    rung.name
                )));
            };
            fs::write(path, show::svg(trace))
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        Ok(CommandOutput::fine(if json {
            show::json(rung, &found)
        } else {
            show::table(rung, &found, terminal.colour)
        }))
    }
}

/// Play the shortest counterexample of a rung on a real server, and compare every reply
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Which rung
    rung: String,

    /// Play it on this server instead of one of the lab's own; as often as the rung needs servers
    #[arg(long, value_name = "URL")]
    url: Vec<String>,

    /// How long a tick is; made longer by itself if a step was late
    #[arg(long, value_name = "DUR", default_value = "200ms", value_parser = humantime::parse_duration)]
    tick: Duration,
}

impl Replay {
    pub(super) fn run(&self, json: bool) -> Result<CommandOutput, CommandError> {
        let name = &self.rung;
        let RungResult::Broken(trace) = find_out(find(name)?) else {
            return Err(CommandError::Usage(format!(
                "{name} has no story to replay: nothing was found within its bounds\n    next    leasehold-lab show {name}",
            )));
        };
        let replayed = replay(&trace, &self.url, self.tick)?;
        let text = if json {
            json_line("leasehold.lab-replay/1", &replayed)
        } else {
            replayed.to_string()
        };
        let fine = replayed.verdict == ReplayVerdict::Reproduced;
        Ok(CommandOutput { text, fine })
    }
}

fn find(name: &str) -> Result<&'static Rung, CommandError> {
    rungs::find(name).ok_or_else(|| {
        CommandError::Usage(format!(
            "there is no rung {name:?}\n    next    leasehold-lab"
        ))
    })
}

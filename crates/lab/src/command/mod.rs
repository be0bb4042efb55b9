//! The lab's command line. The output is returned to the caller, which prints it and ends the process.

mod check;
mod ladder;

use clap::{Parser, Subcommand};

pub use crate::output::{CommandError, CommandOutput, Terminal};
use crate::storm::args::{Judge, Storm};

/// Find and replay what is wrong with other locks, and check our own rules
#[derive(Debug, Parser)]
#[command(name = "leasehold-lab", version, after_help = ABOUT)]
pub struct Lab {
    /// Print JSON instead of text
    // Global: one flag for all verbs, before or after them.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    verb: Option<Verb>,
}

const ABOUT: &str = "\
Without a verb: the rungs of the ladder, each recipe with what its model found. No server is needed for that, nor for
show and check; replay and storm start their own redis-server.";

/// What to do; without one, the list of the rungs.
#[derive(Debug, Subcommand)]
enum Verb {
    Show(ladder::Show),
    Replay(ladder::Replay),
    Check(check::Check),
    Storm(Storm),
    Judge(Judge),
}

impl Lab {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn run(&self, terminal: &Terminal) -> Result<CommandOutput, CommandError> {
        let json = self.json;
        match &self.verb {
            None => Ok(ladder::list(json, terminal)),
            Some(Verb::Show(show)) => show.run(json, terminal),
            Some(Verb::Replay(replay)) => replay.run(json),
            Some(Verb::Check(check)) => check.run(json, terminal),
            Some(Verb::Storm(storm)) => Ok(storm.run(json, terminal)?),
            Some(Verb::Judge(judge)) => judge.run(json),
        }
    }
}

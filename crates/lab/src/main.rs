//! The command `leasehold-lab`: the same as `leasehold lab`, in a separate program.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use leasehold_lab::command::{self, CommandError, Lab, Terminal};
use leasehold_lab::parts;

/// Find and replay what is wrong with other locks, and check our own rules.
#[derive(Debug, Parser)]
#[command(name = "leasehold-lab", version)]
struct Cli {
    #[command(flatten)]
    lab: Lab,
}

fn main() -> ExitCode {
    if let Some(played) = parts::play() {
        return played;
    }
    let asked = Terminal {
        colour: io::stdout().is_terminal(),
        progress: &|line| eprintln!("{line}"),
    };
    match command::run(&Cli::parse().lab, &asked) {
        Ok(output) => {
            let written = io::stdout().write_all(output.text.as_bytes());
            if output.fine && written.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(CommandError::Usage(why) | CommandError::Failed(why)) => {
            eprintln!("leasehold-lab: {why}");
            ExitCode::FAILURE
        }
    }
}

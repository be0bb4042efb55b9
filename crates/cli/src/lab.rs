//! `leasehold lab`: the verbs of the lab. An experiment uses its own server, or the one of its `--url`, and
//! never the store of the locks.

use std::cell::Cell;
use std::io;

use leasehold_lab::command::{self, CommandError, CommandOutput, Lab, Terminal};

use crate::exit::{Exit, SOFTWARE, UNAVAILABLE, USAGE};
use crate::messages::{CLEAR, can_rewrite, rewritten, say, write_raw};
use crate::{output, style, sys, verbose};

/// Runs a verb of the lab.
pub(crate) fn lab(args: &Lab) -> Exit {
    let progress = LabProgress::default();
    let asked = Terminal {
        colour: style::applies_to(&io::stdout()),
        progress: &|line| progress.tell(line),
    };
    let found = command::run(args, &asked);
    progress.end();
    match found {
        Ok(CommandOutput { text, fine }) => match output::print(&text) {
            Ok(()) if fine => Exit::quiet(0),
            // The experiment contradicts its expectation: a bug here, or a wrong statement about a protocol.
            Ok(()) => Exit::quiet(SOFTWARE),
            Err(exit) => exit,
        },
        Err(CommandError::Usage(why)) => explained(USAGE, &why),
        Err(CommandError::Failed(why)) => explained(UNAVAILABLE, &why),
    }
}

/// The progress of an experiment. With `-v` a line for each step, at a terminal one line that is rewritten, else
/// nothing.
#[derive(Default)]
struct LabProgress {
    /// True while the terminal shows a progress line.
    stands: Cell<bool>,
}

impl LabProgress {
    fn tell(&self, line: &str) {
        if verbose::is_on() {
            say(line);
        } else if can_rewrite() {
            let columns = sys::columns(io::stderr());
            write_raw(&rewritten(&format!("leasehold: {line}"), columns));
            self.stands.set(true);
        }
    }

    /// Clears the progress line before the result.
    fn end(&self) {
        if self.stands.take() {
            write_raw(CLEAR);
        }
    }
}

/// An exit whose first line ends with the exit code.
fn explained(code: u8, why: &str) -> Exit {
    let (first, rest) = why.split_once('\n').unwrap_or((why, ""));
    let message = format!("{first} (exit {code})\n{rest}");
    Exit::saying(code, message.trim_end())
}

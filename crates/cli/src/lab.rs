//! `leasehold lab`: the lab's verbs under ours. Must never use the store that locks are in: an experiment takes a server of its
//! own, or the one that its `--url` names.

use std::cell::Cell;
use std::io;

use leasehold_lab::command::{self, CommandError, CommandOutput, Lab, Terminal};

use crate::exit::{Exit, SOFTWARE, UNAVAILABLE, USAGE};
use crate::messages::{CLEAR, can_rewrite, rewritten, say, write_raw};
use crate::{output, style, sys, verbose};

/// Does it.
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
            // A fault of this program, or of what it says about others.
            Ok(()) => Exit::quiet(SOFTWARE),
            Err(exit) => exit,
        },
        Err(CommandError::Usage(why)) => explained(USAGE, &why),
        Err(CommandError::Failed(why)) => explained(UNAVAILABLE, &why),
    }
}

/// How far an experiment is: with `-v` a line each time; at a terminal one line that is rewritten; else nothing.
#[derive(Default)]
struct LabProgress {
    /// There is such a line.
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

    /// Makes room for what was found.
    fn end(&self) {
        if self.stands.take() {
            write_raw(CLEAR);
        }
    }
}

/// With the exit code at the end of the first line, as everywhere.
fn explained(code: u8, why: &str) -> Exit {
    let (first, rest) = why.split_once('\n').unwrap_or((why, ""));
    let message = format!("{first} (exit {code})\n{rest}");
    Exit::saying(code, message.trim_end())
}

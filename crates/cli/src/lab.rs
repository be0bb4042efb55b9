//! `leasehold lab`: the lab's verbs under ours. Must never use the store that locks are in: an experiment takes a server of its
//! own, or the one that its `--url` names.

use std::io;

use leasehold_lab::command::{self, Asked, Lab, Refused, Said};

use crate::exit::{Exit, SOFTWARE, UNAVAILABLE, USAGE};
use crate::text::say;
use crate::{out, style};

/// Does it.
pub(crate) fn lab(args: &Lab) -> Exit {
    let asked = Asked {
        colour: style::applies_to(&io::stdout()),
        progress: &say,
    };
    match command::run(args, &asked) {
        Ok(Said { text, fine }) => match out::print(&text) {
            Ok(()) if fine => Exit::quiet(0),
            // A fault of this program, or of what it says about others.
            Ok(()) => Exit::quiet(SOFTWARE),
            Err(exit) => exit,
        },
        Err(Refused::Usage(why)) => explained(USAGE, &why),
        Err(Refused::Failed(why)) => explained(UNAVAILABLE, &why),
    }
}

/// With the exit code at the end of the first line, as everywhere.
fn explained(code: u8, why: &str) -> Exit {
    let (first, rest) = why.split_once('\n').unwrap_or((why, ""));
    let message = format!("{first} (exit {code})\n{rest}");
    Exit::saying(code, message.trim_end())
}

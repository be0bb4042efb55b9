//! The command `leasehold-lab`. Its exit codes are those of `leasehold`.

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use leasehold_lab::command::{CommandError, CommandOutput, Lab, Terminal};
use leasehold_lab::storm;

/// Wrong use of the command line.
const USAGE: u8 = 64;
/// A server, file or process could not be used.
const UNAVAILABLE: u8 = 69;
/// An experiment contradicts its expectation: a bug here, or a wrong statement about a protocol.
const SOFTWARE: u8 = 70;

fn main() -> ExitCode {
    if let Some(played) = storm::play() {
        return played;
    }
    let lab = match Lab::try_parse() {
        Ok(lab) => lab,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            return explained(USAGE, text.strip_prefix("error: ").unwrap_or(&text));
        }
        Err(help) => {
            // Who does not read help needs no error.
            let _printed: io::Result<()> = help.print();
            return ExitCode::SUCCESS;
        }
    };
    let is_plain = env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let shows_progress = io::stderr().is_terminal();
    let terminal = Terminal {
        colour: io::stdout().is_terminal() && !is_plain,
        progress: &|line| {
            if shows_progress {
                eprintln!("leasehold-lab: {line}");
            }
        },
    };
    match lab.run(&terminal) {
        Ok(CommandOutput { text, fine }) => match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                explained(UNAVAILABLE, &format!("cannot write the output: {error}"))
            }
            _ if fine => ExitCode::SUCCESS,
            _ => SOFTWARE.into(),
        },
        Err(CommandError::Usage(why)) => explained(USAGE, &why),
        Err(CommandError::Failed(why)) => explained(UNAVAILABLE, &why),
    }
}

/// Prints why, with the code in its first line, and without the URLs that were typed: they may contain passwords.
fn explained(code: u8, why: &str) -> ExitCode {
    let typed = env::args_os().map(|word| word.to_string_lossy().into_owned());
    let urls = typed.filter(|word| word.contains("://"));
    let why = &urls.fold(why.to_owned(), |why, word| {
        why.replace(word.strip_prefix("--url=").unwrap_or(&word), "<url>")
    });
    let (first, rest) = why.split_once('\n').unwrap_or((why, ""));
    eprintln!(
        "{}",
        format!("leasehold-lab: {first} (exit {code})\n{rest}").trim_end()
    );
    code.into()
}

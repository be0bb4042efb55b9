//! `leasehold help`, `completions` and `man`: documentation generated from the definition in [`args`].
//!
//! [`args`]: crate::args

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, StyledStr};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::{self, Exit, SOFTWARE, USAGE, exit};
use crate::{messages, output, style};

/// A help topic that is not a verb.
const EXIT_CODES: &str = "exit-codes";

/// Print the help of a verb, or the table of exit codes
#[derive(Debug, Args)]
pub(crate) struct Help {
    /// A verb with its subcommands, or exit-codes
    topic: Vec<String>,
}

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    shell: Shell,
}

const COMPLETIONS: &str = "\
Where the script goes:
  bash    leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
  zsh     leasehold completions zsh > ~/.zfunc/_leasehold    (with ~/.zfunc in $fpath)
  fish    leasehold completions fish > ~/.config/fish/completions/leasehold.fish";

/// Print a manual page
#[derive(Debug, Args)]
#[command(after_help = "To read one: leasehold man run | man -l -")]
pub(crate) struct ManPage {
    /// The verb with its subcommands; without one, the page of the command itself
    verb: Vec<String>,

    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    dir: Option<PathBuf>,
}

/// Prints the same help as `--help`.
pub(crate) fn help(args: &Help, mut command: Command) -> Exit {
    if args.topic == [EXIT_CODES] {
        return print(exit::HELP.as_bytes());
    }
    if let Err(exit) = named(&command, &args.topic) {
        return exit;
    }
    let verbs = args.topic.iter().map(String::as_str);
    let words = ["leasehold"].into_iter().chain(verbs).chain(["--help"]);
    match command.try_get_matches_from_mut(words) {
        Err(help) => print_styled(&help.render()),
        Ok(_) => Exit::quiet(0),
    }
}

/// Prints a completion script.
pub(crate) fn completions(args: &Completions, command: Command) -> Exit {
    // clap needs static strings. This process ends after printing the script.
    let mut topics: Vec<&'static str> = Vec::new();
    topics.extend(verbs(&command).into_iter().map(|verb| &*verb.leak()));
    topics.push(EXIT_CODES);
    let verbs = topics[..topics.len() - 1].to_vec();
    let knows = |verb: Command, arg: &str, words: Vec<&'static str>| {
        verb.mut_arg(arg, |arg| {
            arg.value_parser(PossibleValuesParser::new(words))
        })
    };
    let mut command = command
        .mut_subcommand("help", |verb| knows(verb, "topic", topics))
        .mut_subcommand("man", |verb| knows(verb, "verb", verbs));
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "leasehold", &mut script);
    print(&script)
}

/// Prints a manual page, or writes all pages.
pub(crate) fn man(args: &ManPage, mut command: Command) -> Exit {
    command.build();
    match &args.dir {
        Some(directory) => match write_all(&command, "leasehold", directory) {
            Ok(()) => Exit::quiet(0),
            Err(error) => exit!(
                SOFTWARE,
                "cannot write to {}: {error} (exit {SOFTWARE})",
                directory.display()
            ),
        },
        None => match named(&command, &args.verb) {
            Ok(found) => print(page(found).as_bytes()),
            Err(exit) => exit,
        },
    }
}

/// The visible verbs.
pub(crate) fn verbs(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown.map(|verb| verb.get_name().to_owned()).collect()
}

/// The subcommand that these words name.
fn named<'a>(command: &'a Command, words: &[String]) -> Result<&'a Command, Exit> {
    words.iter().try_fold(command, |above, word| {
        above.find_subcommand(word).ok_or_else(|| {
            let mut there_are = verbs(above).join(", ");
            if above.get_name() == command.get_name() {
                there_are = format!("{there_are}, and for help {EXIT_CODES}");
            }
            let message = format!(
                "no such verb: {} (exit {USAGE})\n    there are    {}",
                messages::quoted(word),
                if there_are.is_empty() {
                    "none below this one"
                } else {
                    &there_are
                },
            );
            // The unknown word may be a URL.
            Exit::saying(USAGE, messages::without_url(&message, word))
        })
    })
}

/// Writes the pages of this command and of its subcommands.
fn write_all(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    fs::write(directory.join(format!("{name}.1")), page(command))?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_all(verb, &format!("{name}-{}", verb.get_name()), directory)?;
    }
    Ok(())
}

/// A page in roff. The synopsis and the details are written here: `clap_mangen` has its own usage line, and would
/// reflow tables.
fn page(command: &Command) -> String {
    let man = Man::new(command.clone())
        .manual("Leasehold")
        .source(concat!("leasehold ", env!("CARGO_PKG_VERSION")));
    let mut roff = Vec::new();
    let mut clone = command.clone();
    let usage = clone.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let details = command.get_after_long_help().or(command.get_after_help());
    // Writing to a vector cannot fail.
    let _written: io::Result<()> = (|| {
        man.render_title(&mut roff)?;
        man.render_name_section(&mut roff)?;
        write!(roff, ".SH SYNOPSIS\n.nf\n{}.fi\n", escaped_for_roff(usage))?;
        man.render_description_section(&mut roff)?;
        man.render_options_section(&mut roff)?;
        if command.has_subcommands() {
            man.render_subcommands_section(&mut roff)?;
        }
        if let Some(details) = details {
            let details = escaped_for_roff(&details.to_string());
            write!(roff, ".SH DETAILS\n.nf\n{details}.fi\n")?;
        }
        Ok(())
    })();
    String::from_utf8_lossy(&roff).into_owned()
}

/// Escapes text for roff.
fn escaped_for_roff(text: &str) -> String {
    let mut roff = String::new();
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        // Writing to a string cannot fail.
        let _written: std::fmt::Result = writeln!(roff, "{guard}{line}");
    }
    roff
}

/// Prints text that clap styled.
pub(crate) fn print_styled(text: &StyledStr) -> Exit {
    let text = if style::applies_to(&io::stdout()) {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    print(text.as_bytes())
}

fn print(bytes: &[u8]) -> Exit {
    match output::write(bytes) {
        // A closed pipe (`leasehold --help | head -1`) is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            exit!(SOFTWARE, "cannot write: {error} (exit {SOFTWARE})")
        }
        _ => Exit::quiet(0),
    }
}

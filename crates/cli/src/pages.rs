//! `leasehold help`, `completions` and `man`: documentation generated from the definition in [`args`]. In its layout,
//! `-h` shows the common options, and `--help` shows all, in sections.
//!
//! [`args`]: crate::args

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, Resettable, StyledStr};
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::{self, Exit, SOFTWARE, USAGE, exit};
use crate::store::SECTION;
use crate::{messages, output};

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
pub(crate) fn help(args: &Help, mut command: Command) -> Result<Exit, Exit> {
    if args.topic == [EXIT_CODES] {
        return print(exit::HELP.as_bytes());
    }
    named(&command, &args.topic)?;
    let verbs = args.topic.iter().map(String::as_str);
    let words = ["leasehold"].into_iter().chain(verbs).chain(["--help"]);
    match command.try_get_matches_from_mut(words) {
        Err(help) => print_styled(&help.render()),
        Ok(_) => Ok(Exit::quiet(0)),
    }
}

/// Prints a completion script.
pub(crate) fn completions(args: &Completions, command: Command) -> Result<Exit, Exit> {
    // clap needs static strings. This process ends after printing the script.
    let verbs = verbs(&command).into_iter().map(|verb| &*verb.leak());
    let verbs: Vec<&'static str> = verbs.collect();
    let topics = [verbs.as_slice(), &[EXIT_CODES]].concat();
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
pub(crate) fn man(args: &ManPage, mut command: Command) -> Result<Exit, Exit> {
    command.build();
    let Some(directory) = &args.dir else {
        return print(page(named(&command, &args.verb)?).as_bytes());
    };
    let written = write_all(&command, "leasehold", directory);
    written.map(|()| Exit::quiet(0)).map_err(|error| {
        exit!(
            SOFTWARE,
            "cannot write to {}: {error} (exit {SOFTWARE})",
            directory.display()
        )
    })
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
    let escape = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        format!("{guard}{line}\n")
    };
    text.lines().map(escape).collect()
}

/// Prints text that clap styled.
pub(crate) fn print_styled(text: &StyledStr) -> Result<Exit, Exit> {
    let text = if messages::is_coloured(&io::stdout()) {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    print(text.as_bytes())
}

fn print(bytes: &[u8]) -> Result<Exit, Exit> {
    match output::write(bytes) {
        // A closed pipe (`leasehold --help | head -1`) is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(exit!(SOFTWARE, "cannot write: {error} (exit {SOFTWARE})"))
        }
        _ => Ok(Exit::quiet(0)),
    }
}

/// A longer closing text appears in `--help` only. `-h` shows its examples.
const FEW: usize = 4;

/// The maximal number of examples in `-h`.
const EXAMPLES: usize = 3;

/// The closing text of `run -h`.
const RUN: &str = "

Exit: CMD's own status; 75 and 124 busy, 79 the lease was lost, 69 the store does not answer.
To hold a lock without a command: leasehold hold LOCK. All exit codes: leasehold help exit-codes.";

/// Sets the help layout of a command and of its subcommands.
pub(crate) fn with_help_layout(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(laid_out).mut_subcommands(with_help_layout);
    let command = match name.as_str() {
        "cache" => command.mut_subcommands(|verb| verb.mut_args(of_a_value)),
        "elect" => command.mut_args(of_an_election),
        _ => command,
    };
    let Some(whole) = command.get_after_help().cloned() else {
        return command;
    };
    let text = whole.to_string();
    // The page of the command itself is always shown whole.
    if text.lines().count() <= FEW || name == "leasehold" {
        return command;
    }
    let examples: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  leasehold "))
        .take(EXAMPLES)
        .collect();
    let mut short = examples.join("\n");
    if name == "run" {
        short += RUN;
    }
    let short = (!short.is_empty()).then(|| StyledStr::from(short));
    command
        .after_long_help(whole)
        .after_help(Resettable::from(short))
}

/// Sets what is the same for all options. Their sections, and what `-h` leaves out, are attributes in their definitions.
fn laid_out(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values();
    // A variable may hold a secret.
    let arg = arg.hide_env_values(takes_value);
    if arg.is_positional() {
        return arg;
    }
    // `--wait -1` is a bad value, not an option called `1`. The help text names the possible values.
    arg.allow_negative_numbers(takes_value)
        .hide_possible_values(takes_value)
}

/// The section of the store in the help of `leasehold cache`.
const VALUES: &str = "Where values are kept";

/// The store options with the wording of `leasehold cache`, which has no locks.
fn of_a_value(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let words = [
        (SECTION, VALUES),
        ("the name of the lock", "the key"),
        (
            "How the key is made from the name",
            "How the key in the store is made from KEY",
        ),
    ];
    let reworded = words
        .iter()
        .fold(help, |help, (from, to)| help.replace(from, to));
    let is_of_store = arg.get_help_heading() == Some(SECTION);
    let arg = arg.help(reworded);
    if is_of_store {
        arg.help_heading(VALUES)
    } else {
        arg
    }
}

/// The options of `run` with the wording of `leasehold elect`.
fn of_an_election(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let help = match arg.get_long() {
        Some("note") => {
            let says = "The address of this process, for `leasehold leader`; by default the name of the command";
            return arg.hide_short_help(false).help(says);
        }
        Some("ttl") => help.replace("[default: 30s", "[default: 10s"),
        _ => return arg,
    };
    arg.help(help)
}

/// The verb closest to a mistyped one.
pub(crate) fn nearest<'a>(typed: &str, verbs: &'a [String]) -> Option<&'a str> {
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let near = |verb: &&String| {
        sorted(verb) == sorted(typed) || is_one_edit(typed, verb) || is_one_edit(verb, typed)
    };
    verbs.iter().find(near).map(String::as_str)
}

/// True if `word` equals `other` with one letter inserted or replaced.
fn is_one_edit(word: &str, other: &str) -> bool {
    let (word, other): (Vec<char>, Vec<char>) = (word.chars().collect(), other.chars().collect());
    let same = word.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (rest, other_rest) = (&word[same..], &other[same..]);
    match rest.split_first() {
        Some((_, rest)) => rest == other_rest || other_rest.get(1..) == Some(rest),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_that_was_meant_is_found() {
        let verbs = ["run", "hold", "wait", "watch", "inspect"].map(str::to_owned);
        for (typed, meant) in [
            ("rnu", Some("run")),
            ("runn", Some("run")),
            ("hol", Some("hold")),
            ("wart", Some("wait")),
            ("lock", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &verbs), meant, "{typed}");
        }
    }
}

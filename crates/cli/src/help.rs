//! The layout of help: `-h` shows the common options, `--help` shows all, in sections.

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, Command};

/// The sections of `--help`, for options that most people set once, or never. `-h` leaves these out, except `--url`.
pub(crate) const STORE: &str = "Where locks live";
pub(crate) const WAITING: &str = "Waiting";
pub(crate) const LEASE: &str = "The lease and the command";
pub(crate) const SHARING: &str = "Sharing keys with other programs";

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
    let command = command
        .mut_args(with_negative_values)
        .mut_args(without_sections)
        .mut_subcommands(with_help_layout);
    let command = if name == "cache" {
        command.mut_subcommands(|verb| verb.mut_args(of_a_value))
    } else {
        command
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
        short += "\n";
        short += RUN;
    }
    let short = (!short.is_empty()).then(|| StyledStr::from(short));
    command
        .after_long_help(whole)
        .after_help(Resettable::from(short))
}

/// `--wait -1` is a bad value, not an option called `1`.
fn with_negative_values(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values() && !arg.is_positional();
    arg.allow_negative_numbers(takes_value)
}

/// Leaves the options of the sections out of `-h`.
fn without_sections(arg: Arg) -> Arg {
    let is_left_out = arg.get_help_heading().is_some() && arg.get_id() != "url";
    if is_left_out {
        arg.hide_short_help(true)
    } else {
        arg
    }
}

/// The section of the store in the help of `leasehold cache`.
const VALUES: &str = "Where values are kept";

/// The store options with the wording of `leasehold cache`, which has no locks.
fn of_a_value(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let words = [
        (STORE, VALUES),
        ("the name of the lock", "the key"),
        (
            "How the key is made from the name",
            "How the key in the store is made from KEY",
        ),
    ];
    let reworded = words
        .iter()
        .fold(help, |help, (from, to)| help.replace(from, to));
    let is_of_store = arg.get_help_heading() == Some(STORE);
    let arg = arg.help(reworded);
    if is_of_store {
        arg.help_heading(VALUES)
    } else {
        arg
    }
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

//! The layout of help: `-h` shows the common options, `--help` shows all, in sections.

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, Command};

/// Options that `-h` leaves out: most people set them once, or never.
const RARE: [&str; 41] = [
    // The store.
    "url_file",
    "password_file",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_name",
    "tls_pin",
    "namespace",
    "key_template",
    "config",
    // The waiting.
    "note",
    "max_waiters",
    "progress",
    // `run`.
    "busy_code",
    "max_hold",
    "at_least",
    "on_lost",
    "grace",
    "release_on_exit",
    "report",
    "protocol",
    "timestamp_unit",
    "timestamp_without_scripts",
    // `cache`.
    "refresh_log",
    "max_size",
    "back_off",
    "if_unavailable",
    // `doctor`.
    "ignore",
    "strict",
    "keys",
    // `lab`.
    "tolerance",
    "resource",
    "keep",
    "think",
    "latency",
    "script",
    "set",
    "hand_overs",
    "svg",
    "section",
    // Everywhere.
    "color",
];

/// The sections of `--help`.
const SECTIONS: [(&str, &[&str]); 4] = [
    (
        "Where locks live",
        &[
            "url",
            "url_file",
            "password_file",
            "tls_ca",
            "tls_cert",
            "tls_key",
            "tls_name",
            "tls_pin",
            "namespace",
            "key_template",
            "config",
        ],
    ),
    ("Waiting", &["note", "max_waiters", "progress", "busy_code"]),
    (
        "The lease and the command",
        &[
            "max_hold",
            "at_least",
            "on_lost",
            "grace",
            "release_on_exit",
            "report",
        ],
    ),
    (
        "Sharing keys with other programs",
        &["protocol", "timestamp_unit", "timestamp_without_scripts"],
    ),
];

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
    // The verbs of `lab` have a `--url` with another meaning.
    let has_store = command
        .get_arguments()
        .any(|arg| arg.get_id() == "url_file");
    let command = command
        .mut_args(|arg| arg_layout(arg, has_store))
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

fn arg_layout(arg: Arg, has_store: bool) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    let takes_value = arg.get_action().takes_values() && !arg.is_positional();
    let section = SECTIONS
        .iter()
        .find(|(_, ids)| has_store && ids.contains(&id.as_str()))
        .map(|(title, _)| *title);
    // `--wait -1` is a bad value, not an option called `1`.
    let arg = arg
        .hide_short_help(RARE.contains(&id.as_str()))
        .allow_negative_numbers(takes_value);
    match section {
        Some(title) => arg.help_heading(title),
        None => arg,
    }
}

/// The store options with the wording of `leasehold cache`, which has no locks.
fn of_a_value(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let words = [
        ("Where locks live", "Where values are kept"),
        ("the name of the lock", "the key"),
        (
            "How the key is made from the name",
            "How the key in the store is made from KEY",
        ),
    ];
    let reworded = words
        .iter()
        .fold(help, |help, (from, to)| help.replace(from, to));
    let is_of_store = arg.get_help_heading() == Some("Where locks live");
    let arg = arg.help(reworded);
    if is_of_store {
        arg.help_heading("Where values are kept")
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

    #[cfg(feature = "cache")]
    #[test]
    fn every_name_in_the_tables_is_an_option() {
        fn ids(command: &Command, found: &mut Vec<String>) {
            let of = command.get_arguments().map(|arg| arg.get_id().to_string());
            found.extend(of);
            command
                .get_subcommands()
                .for_each(|below| ids(below, found));
        }
        let mut found = Vec::new();
        ids(&crate::args::command(), &mut found);
        let sections = SECTIONS.iter().flat_map(|(_, ids)| ids.iter());
        for id in RARE.iter().chain(sections) {
            assert!(found.iter().any(|found| found == id), "{id}");
        }
    }
}

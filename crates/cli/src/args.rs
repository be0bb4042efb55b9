//! The command line. Errors about it hide URLs, which may contain a password.

use std::env;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "cache")]
use crate::cache;
use crate::exit::{self, Exit, exit};
use crate::messages::{self, ColorChoice};
#[cfg(feature = "serve")]
use crate::serve;
#[cfg(feature = "serve")]
use crate::ui;
use crate::{
    break_lock, dev, doctor, hold, inspect, leader, pages, quorum, run, token, verbose, wait, watch,
};

const ABOUT: &str = "\
Examples:
  leasehold run --url local: backup -- ./backup.sh      one at a time on this host
  export LEASEHOLD_URL=redis://host:6379/               from now on, for all hosts
  leasehold run --wait 5m db-migrate -- ./migrate.sh
  leasehold inspect db-migrate                          its holder and its waiters

`leasehold VERB --help` describes a verb, `leasehold help exit-codes` the exit codes.";

/// Distributed locks that tell you when they are lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, disable_help_subcommand = true, after_help = ABOUT)]
struct Cli {
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        display_order = 900,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help = "When to use colour: auto, always, never; auto follows NO_COLOR and CLICOLOR_FORCE"
    )]
    color: ColorChoice,

    /// Log connection, lock and cache events on stderr; twice: every renewal as well
    #[arg(short, long, global = true, display_order = 901, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    verb: Verb,
}

/// The verbs. Each has a module with its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<run::Run>),
    Hold(hold::Hold),
    #[cfg(feature = "serve")]
    Serve(serve::Serve),
    Elect(Box<run::Elect>),
    Acquire(token::Acquire),
    Renew(token::Renew),
    Release(token::Release),
    Check(token::Check),
    Inspect(inspect::Inspect),
    Leader(leader::Leader),
    Wait(wait::Wait),
    Watch(watch::Watch),
    #[cfg(feature = "serve")]
    Ui(ui::Ui),
    Break(break_lock::Break),
    #[cfg(feature = "cache")]
    Cache(cache::Cache),
    Doctor(doctor::Doctor),
    Quorum(quorum::Quorum),
    Dev(dev::Dev),
    Completions(pages::Completions),
    Man(pages::ManPage),
    Help(pages::Help),
}

/// The definition of the command line, with its help layout.
pub(crate) fn command() -> clap::Command {
    pages::with_help_layout(Cli::command())
}

/// Parses the command line. The error is the exit of this process, also for `--help`.
pub(crate) fn parse() -> Result<Verb, Exit> {
    // Only help and errors need the layout, so the first attempt skips it.
    let parsed = Cli::try_parse().or_else(|_| {
        let mut found = command().try_get_matches()?;
        Cli::from_arg_matches_mut(&mut found).map_err(|error| error.format(&mut command()))
    });
    match parsed {
        Ok(cli) => {
            messages::choose_colour(cli.color);
            verbose::listen(cli.verbose);
            Ok(cli.verb)
        }
        Err(error) => {
            messages::choose_colour(colour_of_a_faulty_line(env::args_os()));
            Err(answer(&error))
        }
    }
}

/// The exit for `--help`, `--version` and errors.
fn answer(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return pages::print_styled(&error.render()).unwrap_or_else(|exit| exit);
    }
    // The message quotes the typed words. One of them may be a misplaced URL.
    let typed = env::args_os().skip(1);
    let message = typed.fold(error.to_string(), |message, word| {
        messages::without_url(&message, &word.to_string_lossy())
    });
    let message = messages::without_passwords(&message)
        .replace("unrecognized subcommand", "no such verb:")
        .replace("a similar subcommand exists", "a similar verb exists")
        .replace(
            "For more information, try '--help'.",
            &format!("    next    {} --help", understood(env::args_os())),
        );
    let message = without_tips(&message) + &verb_list(error);
    // Without any argument, clap's error is the help text.
    let message = message
        .strip_prefix("error: ")
        .map_or_else(|| format!("nothing to do\n\n{message}"), str::to_owned);
    let (first, rest) = message
        .trim_end()
        .split_once('\n')
        .unwrap_or((&message, ""));
    exit!(exit::USAGE, "{first} (exit {})\n{rest}", exit::USAGE)
}

/// Removes misleading tips of clap: `-- --lock` does not name a lock, and `zsh` is not similar to `tcsh`.
fn without_tips(message: &str) -> String {
    let misleads = |line: &&str| {
        let line = line.trim_start();
        !(line.starts_with("tip: to pass") || line.starts_with("tip: a similar value exists"))
    };
    let lines: Vec<&str> = message.lines().filter(misleads).collect();
    lines.join("\n").replace("\n\n\n", "\n\n")
}

/// For an unknown verb: the most similar one, and the list of all verbs.
fn verb_list(error: &clap::Error) -> String {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(typed))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return String::new();
    };
    let line = understood(env::args_os());
    if line == "leasehold" && typed == "lab" {
        return "\n    the lab is a program of its own    cargo run -p leasehold-lab, in a clone of the repository".into();
    }
    let program = command();
    let above = line
        .split(' ')
        .skip(1)
        .try_fold(&program, |above, word| above.find_subcommand(word));
    let verbs = pages::verbs(above.unwrap_or(&program));
    let is_suggested = error.get(ContextKind::SuggestedSubcommand).is_some();
    let meant = pages::nearest(typed, &verbs).filter(|_| !is_suggested);
    let meant = meant.map(|verb| format!("\n    did you mean    {line} {verb}"));
    format!(
        "{}\n    there are    {}",
        meant.unwrap_or_default(),
        verbs.join(", ")
    )
}

/// The program name and the verbs that were recognized, to which `--help` can be added.
fn understood(words: impl Iterator<Item = OsString>) -> String {
    let program = command();
    let mut verb = &program;
    let mut line = "leasehold".to_owned();
    for word in words.skip(1) {
        if word.to_string_lossy().starts_with('-') {
            continue;
        }
        let Some(below) = verb.find_subcommand(&word) else {
            break;
        };
        verb = below;
        line = format!("{line} {}", verb.get_name());
    }
    line
}

/// The value of `--color` on a command line that is invalid or asks for help, as far as it can be parsed.
fn colour_of_a_faulty_line(words: impl IntoIterator<Item: Into<OsString> + Clone>) -> ColorChoice {
    // Ordinary options: clap's own `--help` and `--version` would stop the parsing.
    let ordinary = |name, short| {
        Arg::new(name)
            .long(name)
            .short(short)
            .global(true)
            .action(ArgAction::Count)
    };
    let lenient = command()
        .ignore_errors(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args([ordinary("help", 'h'), ordinary("version", 'V')]);
    lenient
        .try_get_matches_from(words)
        .ok()
        .and_then(|found| found.try_get_one("color").ok().flatten().copied())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_no_faults() {
        command().debug_assert();
    }

    #[test]
    fn what_is_hidden_is_words_that_the_usage_names() {
        for mut verb in command().get_subcommands().cloned() {
            let usage = verb.render_usage().to_string();
            for hidden in verb.get_arguments().filter(|arg| arg.is_hide_set()) {
                assert!(hidden.is_positional(), "{hidden}");
                let names = ["LOCK", "NAME"].iter().any(|word| usage.contains(word));
                assert!(names, "{hidden}: {usage}");
            }
        }
    }

    #[test]
    fn the_help_of_the_verb_that_was_meant_is_named() {
        for (words, understood_of_it) in [
            (
                ["leasehold", "-v", "run", "wait"].as_slice(),
                "leasehold run",
            ),
            (&["leasehold", "ls", "--jsn"], "leasehold inspect"),
            (&["leasehold", "rnu", "run"], "leasehold"),
            (&["leasehold"], "leasehold"),
        ] {
            let words = words.iter().map(OsString::from);
            assert_eq!(understood(words), understood_of_it);
        }
    }

    #[test]
    fn colour_is_found_where_the_rest_is_wrong() {
        for (words, when) in [
            (
                ["leasehold", "--color=always", "--tyr"].as_slice(),
                ColorChoice::Always,
            ),
            (
                &["leasehold", "run", "--color", "never", "--help"],
                ColorChoice::Never,
            ),
            (
                &["leasehold", "run", "-h", "--color=never"],
                ColorChoice::Never,
            ),
            (&["leasehold", "run", "--tyr", "x"], ColorChoice::Auto),
            (
                &["leasehold", "--version", "--color=always"],
                ColorChoice::Always,
            ),
            (
                &["leasehold", "--color=always", "no-such-verb"],
                ColorChoice::Always,
            ),
            (&["leasehold", "--color=purple"], ColorChoice::Auto),
            (&["leasehold"], ColorChoice::Auto),
        ] {
            assert_eq!(colour_of_a_faulty_line(words.iter()), when, "{words:?}");
        }
    }
}

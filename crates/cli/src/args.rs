//! What was typed. Must never print a URL, which may hold a password.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use leasehold::Ttl;

use crate::exit::{self, Exit};
use crate::text;

/// The usage of `run`: clap cannot say by itself that options stop at the name of the lock.
const USAGE: &str = "leasehold run [OPTIONS] LOCK [--] CMD [ARG...]";

const URL: &str = "Where locks live: redis://[user:password@]host[:port][/db], rediss://..., unix:/path/to/socket, local: for your processes on this host, or local:/path/to/file";

/// Distributed locks that tell you when they are lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Run),
}

/// Take a lock, run a command, release the lock
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = after_help())]
pub(crate) struct Run {
    /// Where locks live
    #[arg(long, env = "LEASEHOLD_URL", hide_env_values = true, help = URL)]
    pub(crate) url: Option<String>,

    /// Do not wait: if the lock is busy, exit with 75
    #[arg(short = 'n', long = "try", conflicts_with = "wait")]
    pub(crate) once: bool,

    /// Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124
    #[arg(short, long, value_name = "DUR", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// How long the lease lasts if this process dies or loses the store, 10ms to 24h; renewed each third of it
    #[arg(long, value_name = "DUR", env = "LEASEHOLD_TTL", hide_env_values = true, default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Duration,

    /// What this is doing, for those who wait; by default, the name of the command
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_NOTE",
        hide_env_values = true
    )]
    pub(crate) note: Option<String>,

    /// A prefix for the name of the lock, followed by a colon
    #[arg(
        long,
        value_name = "NS",
        env = "LEASEHOLD_NAMESPACE",
        hide_env_values = true
    )]
    pub(crate) namespace: Option<String>,

    /// Say nothing about waiting and busy locks, only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The lock, the command and its arguments: one list, since options stop at its first word
    #[arg(hide = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// What a command gets, and how it can end.
fn after_help() -> String {
    format!("{ABOUT}\n\n{}", exit::help())
}

const ABOUT: &str = "\
Waits in line until LOCK is free, runs CMD while renewing the lease, releases the lock, and ends
with CMD's own status. Options stop at LOCK. CMD gets stdin, stdout, stderr and the terminal
untouched, its arguments as they are (no shell), and in its environment:
  LEASEHOLD_FENCE      a number that only rises: show it to whatever the lock protects
  LEASEHOLD_LOCK, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS, LEASEHOLD_WAITED_MS

If the lease is lost meanwhile, CMD is stopped before others can get the lock. The lock covers CMD
itself, not what CMD leaves behind in the background.";

impl Run {
    /// The name of the lock.
    pub(crate) fn lock(&self) -> Result<&str, Exit> {
        let name = self
            .words
            .first()
            .ok_or_else(|| refuse("no lock and no command", ""))?;
        name.to_str().ok_or_else(|| {
            refuse(
                &format!("invalid lock name {}: is not UTF-8", text::shown(name)),
                "",
            )
        })
    }

    /// The command and its arguments.
    pub(crate) fn command(&self) -> Result<&[OsString], Exit> {
        let words = self.words.get(1..).unwrap_or_default();
        let command = if words.first().is_some_and(|word| word == "--") {
            &words[1..]
        } else {
            words
        };
        if command.is_empty() {
            let lock = text::quoted(self.lock()?);
            return Err(refuse(
                &format!("no command after the lock {lock}"),
                "; if that is the command, the name is missing: is a variable unset?",
            ));
        }
        Ok(command)
    }
}

fn refuse(what: &str, more: &str) -> Exit {
    Exit::saying(
        exit::USAGE,
        format!("{what} (exit {}){more}\n    next    {USAGE}", exit::USAGE),
    )
}

/// Reads the command line. The error is how the process ends if there is nothing to run, `--help` included.
pub(crate) fn parse() -> Result<Run, Exit> {
    match Cli::try_parse() {
        Ok(Cli {
            verb: Verb::Run(run),
        }) => Ok(run),
        Err(error) if error.use_stderr() => {
            // What was typed is quoted, and may be a URL in the wrong place.
            let message = text::without_passwords(&error.to_string());
            // Without any word, clap answers with the help itself.
            let message = message
                .strip_prefix("error: ")
                .map_or_else(|| format!("nothing to do\n\n{message}"), str::to_owned);
            let (first, rest) = message
                .trim_end()
                .split_once('\n')
                .unwrap_or((&message, ""));
            Err(Exit::saying(
                exit::USAGE,
                format!("{first} (exit {})\n{rest}", exit::USAGE),
            ))
        }
        Err(help) => {
            // A closed pipe (`leasehold --help | head -1`) is not an error.
            let _printed: std::io::Result<()> = help.print();
            Err(Exit::quiet(0))
        }
    }
}

/// `5s`, `1h 30m`, `0.5` (seconds).
fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        let seconds = text
            .parse()
            .map_err(|_| "write 30s, 5m, 2h, or a number of seconds".to_owned())?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| "is too long".to_owned());
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write 30s, 5m, 2h, or a number of seconds"))
}

fn ttl(text: &str) -> Result<Duration, String> {
    // The library judges it, before there is a connection.
    Ttl::new(duration(text)?)
        .map(Ttl::get)
        .map_err(|invalid| invalid.why.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Run {
        let Verb::Run(run) = Cli::try_parse_from([&["leasehold", "run"], words].concat())
            .unwrap()
            .verb;
        run
    }

    #[test]
    fn options_stop_at_the_name_of_the_lock() {
        for words in [
            ["-q", "x", "--", "-n", "--url=u"].as_slice(),
            &["-q", "x", "-n", "--url=u"],
            &["-q", "--", "x", "--", "-n", "--url=u"],
        ] {
            let run = run(words);
            assert!(run.quiet && !run.once, "{words:?}");
            assert_eq!(
                (run.lock().unwrap(), run.command().unwrap()),
                ("x", ["-n".into(), "--url=u".into()].as_slice())
            );
        }
        assert_eq!(
            run(&["x", "echo", "--", "--help"]).command().unwrap(),
            ["echo", "--", "--help"]
        );
    }

    #[test]
    fn a_name_alone_is_refused() {
        run(&["x"]).command().unwrap_err();
        run(&["x", "--"]).command().unwrap_err();
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("5s", 5_000),
            ("2h", 7_200_000),
            ("7", 7_000),
            ("0.5", 500),
            ("1m 30s", 90_000),
            ("0", 0),
            ("250ms", 250),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "nonsense",
            "5 parsecs",
            "1.2.3",
            "-1",
            "inf",
            &"9".repeat(400),
        ] {
            duration(text).unwrap_err();
        }
    }
}

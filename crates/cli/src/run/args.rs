//! What was typed after `run`.

use std::borrow::Cow;
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;

use crate::acquire_ui::WaitArgs;
use crate::exit::{self, Exit};
use crate::messages;
use crate::store::{StoreArgs, TtlArgs};
use crate::values::{duration, hold, ttl};

use super::stop::StopLimits;
use super::timestamp::{TimestampArgs, TimestampSettings};

/// The usage of `run`: clap cannot say by itself that options stop at the name of the lock.
const USAGE: &str = "leasehold run [OPTIONS] LOCK [--] CMD [ARG...]";

/// Renewed each third of it, a shorter lease is over before a busy host has run both the renewal and this process. At 30 ms, nine
/// commands of ten were stopped on a quiet host; at 60 ms, none.
const SHORTEST_TTL: Duration = Duration::from_millis(50);

/// Take a lock, run a command, release the lock
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = after_help())]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) how: WaitArgs,

    #[command(flatten)]
    pub(crate) ttl: TtlArgs,

    /// A busy lock is success: exit with 0 and say nothing (waits only with --wait)
    #[arg(long, conflicts_with = "busy_code")]
    pub(crate) skip: bool,

    /// Exit with N instead of 75 and 124
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) busy_code: Option<u8>,

    /// Stop the command when it has had the lock for this long (at least 10ms), and exit with 79
    #[arg(long, value_name = "DUR", value_parser = hold)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock until this long (10ms to 24h) after it was acquired, if the command succeeds sooner
    #[arg(long, value_name = "DUR", value_parser = ttl)]
    pub(crate) at_least: Option<Duration>,

    /// What to do when the lease is lost: term (then KILL), kill, warn (and go on), or signal:NAME (then KILL)
    #[arg(long, value_name = "ACTION", default_value = "term", value_parser = OnLost::parse)]
    pub(crate) on_lost: OnLost,

    /// Time between asking the command to stop and killing it, less than a third of the TTL; by default a sixth, up to 5s
    #[arg(long, value_name = "DUR", value_parser = duration)]
    grace: Option<Duration>,

    /// Release the lock when the command ends, even if it leaves processes behind
    #[arg(long)]
    pub(crate) release_on_exit: bool,

    /// Write one JSON document about how it ended to a file, or to fd:N
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<String>,

    #[command(flatten)]
    timestamp: TimestampArgs,

    /// Run a shell command: sh -c STRING
    #[arg(short = 'c', value_name = "STRING")]
    shell: Option<OsString>,

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
  LEASEHOLD_TOKEN      proof of who holds the lock, for `leasehold check`
  LEASEHOLD_LOCK, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS, LEASEHOLD_WAITED_MS, LEASEHOLD_ACQUIRED_AT
  LEASEHOLD_URL        or LEASEHOLD_URL_FILE: `leasehold` in CMD asks the same store

If the lease is lost meanwhile, CMD and all processes of its group are stopped before others can get
the lock, also when this process is killed or stopped. Processes that CMD leaves behind in its group
keep the lock until they end, unless --release-on-exit is given.

  leasehold run --wait 5m db-migrate -- ./migrate.sh
  leasehold run --try --skip nightly -- ./report.sh     one of many hosts does it
  leasehold run -c 'make && make install' build";

/// What a lost lease means for the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// It is asked to stop by this signal, and killed after the grace.
    Ask(Signal),
    Kill,
    /// It goes on.
    Warn,
}

impl OnLost {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "term" => Ok(Self::Ask(Signal::SIGTERM)),
            "kill" => Ok(Self::Kill),
            "warn" => Ok(Self::Warn),
            _ => text
                .strip_prefix("signal:")
                .and_then(signal)
                .map(Self::Ask)
                .ok_or_else(|| "write term, kill, warn, or signal:NAME such as signal:INT".into()),
        }
    }
}

/// `INT`, `SIGINT` or `int`.
fn signal(name: &str) -> Option<Signal> {
    let name = name.to_ascii_uppercase();
    let short = name.strip_prefix("SIG").unwrap_or(&name);
    format!("SIG{short}").parse().ok()
}

impl Run {
    /// How the lock is kept, if not as a mutex.
    pub(crate) fn timestamp(&self) -> Result<Option<TimestampSettings>, Exit> {
        self.timestamp
            .read(&self.how)
            .map_err(|why| refuse(&why, ""))
    }

    /// The name of the lock.
    pub(crate) fn lock(&self) -> Result<&str, Exit> {
        let missing = if self.shell.is_some() {
            "no lock: its name comes after -c STRING"
        } else {
            "no lock and no command"
        };
        let name = self.words.first().ok_or_else(|| refuse(missing, ""))?;
        name.to_str().ok_or_else(|| {
            refuse(
                &format!("invalid lock name {}: is not UTF-8", messages::shown(name)),
                "",
            )
        })
    }

    /// How to wait. To skip a busy lock is not to wait, unless a limit was given.
    pub(crate) fn waiting(&self) -> WaitArgs {
        WaitArgs {
            once: self.how.once || self.skip && self.how.wait.is_none(),
            quiet: self.how.quiet || self.skip,
            ..self.how.clone()
        }
    }

    /// When the command must be stopped.
    pub(crate) fn limits(&self, ttl: Duration) -> Result<StopLimits, Exit> {
        if ttl < SHORTEST_TTL {
            return Err(refuse(
                &format!(
                    "a TTL of {}ms is too short to run a command under: a pause of a few milliseconds would stop it; at least {}ms",
                    ttl.as_millis(),
                    SHORTEST_TTL.as_millis()
                ),
                "",
            ));
        }
        let limits = StopLimits::of(ttl, self.max_hold);
        let Some(grace) = self.grace else {
            return Ok(self.without_asking(limits));
        };
        let limits = limits.with_grace(grace);
        if !limits.leave_time(ttl) {
            return Err(refuse(
                &format!(
                    "--grace {} is too long: it must be less than a third of the TTL ({})",
                    messages::span(grace),
                    messages::span(ttl)
                ),
                "",
            ));
        }
        if self.max_hold.is_some_and(|max_hold| grace >= max_hold) {
            return Err(refuse("--grace must be less than --max-hold", ""));
        }
        Ok(self.without_asking(limits))
    }

    /// A command that is not asked gets no time to act on it.
    fn without_asking(&self, limits: StopLimits) -> StopLimits {
        if self.on_lost == OnLost::Kill {
            limits.with_grace(Duration::ZERO)
        } else {
            limits
        }
    }

    /// The command and its arguments.
    pub(crate) fn command(&self) -> Result<Cow<'_, [OsString]>, Exit> {
        let words = self.words.get(1..).unwrap_or_default();
        let command = if words.first().is_some_and(|word| word == "--") {
            &words[1..]
        } else {
            words
        };
        if let Some(string) = &self.shell {
            if !command.is_empty() {
                return Err(refuse("a command and -c: one of them is too many", ""));
            }
            return Ok(Cow::Owned(vec!["sh".into(), "-c".into(), string.clone()]));
        }
        if command.is_empty() {
            let lock = messages::quoted(self.lock()?);
            return Err(refuse(
                &format!("no command after the lock {lock}"),
                "; if that is the command, the name is missing: is a variable unset?
    to hold it without a command    leasehold hold LOCK",
            ));
        }
        Ok(Cow::Borrowed(command))
    }
}

fn refuse(what: &str, more: &str) -> Exit {
    Exit::saying(
        exit::USAGE,
        format!("{what} (exit {}){more}\n    next    {USAGE}", exit::USAGE),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    fn run(words: &[&str]) -> Run {
        Line::try_parse_from([&["run"], words].concat())
            .unwrap()
            .run
    }

    #[test]
    fn options_stop_at_the_name_of_the_lock() {
        for words in [
            ["-q", "x", "--", "-n", "--url=u"].as_slice(),
            &["-q", "x", "-n", "--url=u"],
            &["-q", "--", "x", "--", "-n", "--url=u"],
        ] {
            let run = run(words);
            assert!(run.how.quiet && !run.how.once, "{words:?}");
            assert_eq!(
                (run.lock().unwrap(), &*run.command().unwrap()),
                ("x", ["-n".into(), "--url=u".into()].as_slice())
            );
        }
        assert_eq!(
            &*run(&["x", "echo", "--", "--help"]).command().unwrap(),
            ["echo", "--", "--help"]
        );
    }

    #[test]
    fn a_name_alone_is_refused() {
        run(&["x"]).command().unwrap_err();
        run(&["x", "--"]).command().unwrap_err();
    }

    #[test]
    fn a_ttl_that_a_command_cannot_keep_is_refused() {
        let limits = |ms| run(&["x", "true"]).limits(Duration::from_millis(ms));
        for ms in [10, 30, 49] {
            let Err(exit) = limits(ms) else {
                panic!("{ms} ms were taken")
            };
            let said = format!("{exit:?}");
            assert!(
                said.contains(&format!("a TTL of {ms}ms is too short")),
                "{said}"
            );
            assert!(said.contains("at least 50ms"), "{said}");
        }
        for ms in [50, 60, 30_000] {
            assert!(limits(ms).is_ok(), "{ms} ms");
        }
    }

    #[test]
    fn signals_are_read_as_people_write_them() {
        for (text, action) in [
            ("term", Some(OnLost::Ask(Signal::SIGTERM))),
            ("kill", Some(OnLost::Kill)),
            ("warn", Some(OnLost::Warn)),
            ("signal:INT", Some(OnLost::Ask(Signal::SIGINT))),
            ("signal:SIGUSR1", Some(OnLost::Ask(Signal::SIGUSR1))),
            ("signal:hup", Some(OnLost::Ask(Signal::SIGHUP))),
            ("signal:", None),
            ("INT", None),
        ] {
            assert_eq!(OnLost::parse(text).ok(), action, "{text}");
        }
    }

    #[test]
    fn skipping_is_not_waiting_unless_a_limit_is_given() {
        assert!(run(&["--skip", "x", "true"]).waiting().once);
        assert!(!run(&["--skip", "-w", "5", "x", "true"]).waiting().once);
    }
}

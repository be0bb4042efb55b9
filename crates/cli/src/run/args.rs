//! The arguments of `leasehold run`.

use std::borrow::Cow;
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::acquire_ui::{self, KindArgs, WaitArgs};
use crate::config::{duration, hold, ttl};
use crate::exit::{self, Exit, exit};
use crate::messages;
use crate::store::{StoreArgs, TtlArgs};

use super::once::OnceArgs;
use super::stop::{OnLost, StopLimits};
use super::timestamp::TimestampArgs;

/// The usage line: clap cannot express that options stop at the lock name.
const USAGE: &str = "leasehold run [OPTIONS] LOCK [--] CMD [ARG...]";

/// The usage line of `leasehold elect`.
pub(super) const ELECT_USAGE: &str = "leasehold elect [OPTIONS] NAME [--] CMD [ARG...]";

/// With a shorter TTL, a busy host does not run both the renewal and this process in time. At 30 ms, nine of ten
/// commands were stopped on a quiet host; at 60 ms, none.
const SHORTEST_TTL: Duration = Duration::from_millis(50);

/// With a shorter TTL, less than a tenth of a second lies between the kill of the command and the end of its lease.
const SHORT_TTL: Duration = Duration::from_secs(5);

/// The section of the rarer options in `--help`.
pub(super) const SECTION: &str = "The lease and the command";

/// Take a lock, run a command, release the lock
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = format!("{ABOUT}\n\n{}", exit::HELP))]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) how: WaitArgs,

    #[command(flatten)]
    pub(crate) ttl: TtlArgs,

    #[command(flatten)]
    pub(crate) kind: KindArgs,

    /// If the lock is busy, or the work of --once is done, exit with 0 and no message (waits only with --wait)
    #[arg(long, conflicts_with = "busy_code")]
    pub(crate) skip: bool,

    /// Exit with N instead of 75 and 124
    #[arg(short = 'E', long, value_name = "N", help_heading = acquire_ui::SECTION, hide_short_help = true)]
    pub(crate) busy_code: Option<u8>,

    /// Stop the command after it has held the lock for this long (at least 10ms), and exit with 79
    #[arg(long, value_name = "DUR", value_parser = hold, help_heading = SECTION, hide_short_help = true)]
    pub(crate) max_hold: Option<Duration>,

    /// If the command succeeds sooner, keep the lock until this long after it was acquired (10ms to 24h)
    #[arg(long, value_name = "DUR", value_parser = ttl, help_heading = SECTION, hide_short_help = true)]
    pub(crate) at_least: Option<Duration>,

    #[command(flatten)]
    pub(crate) command: CommandArgs,

    #[command(flatten)]
    pub(crate) once: OnceArgs,

    #[command(flatten)]
    pub(crate) timestamp: TimestampArgs,

    /// Campaigns again after a loss: `leasehold elect`.
    #[arg(skip)]
    pub(crate) elects: bool,
}

/// The options of a command under a lock, and its words.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// Action when the lease is lost: term (then KILL), kill, warn (the command continues), or signal:NAME (then
    /// KILL)
    #[arg(long, value_name = "ACTION", default_value = "term", value_parser = OnLost::parse, help_heading = SECTION, hide_short_help = true)]
    pub(crate) on_lost: OnLost,

    /// Time between the stop signal and KILL, less than a third of the TTL; by default a sixth, up to 5s
    #[arg(long, value_name = "DUR", value_parser = duration, help_heading = SECTION, hide_short_help = true)]
    grace: Option<Duration>,

    /// Release the lock when the command ends, even if it leaves processes behind
    #[arg(long, help_heading = SECTION, hide_short_help = true)]
    pub(crate) release_on_exit: bool,

    /// Write a JSON document about the outcome to a file, or to fd:N
    #[arg(long, value_name = "FILE", help_heading = SECTION, hide_short_help = true)]
    pub(crate) report: Option<String>,

    /// Run a shell command: sh -c STRING
    #[arg(short = 'c', value_name = "STRING")]
    shell: Option<OsString>,

    /// The lock, the command and its arguments. One list, since options stop at its first word
    #[arg(hide = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

const ABOUT: &str = "\
Waits in line until LOCK is free, runs CMD while renewing the lease, releases the lock, and exits
with CMD's own status. Options stop at LOCK. CMD gets stdin, stdout, stderr and the terminal
unchanged, its arguments as typed (no shell), and in its environment:
  LEASEHOLD_FENCE      a number that only rises: send it to the resource that the lock protects
  LEASEHOLD_TOKEN      identifies this lease, for `leasehold check`
  LEASEHOLD_FIRING     with --once: what this run is for
  LEASEHOLD_LOCKS      with --also: all locks, as JSON
  LEASEHOLD_MODE       exclusive; shared with --shared; slot/N with --slots N
  LEASEHOLD_SLOT       with --slots: the number of the slot, and LEASEHOLD_SLOT_FENCE in place of _FENCE
  LEASEHOLD_LOCK, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS, LEASEHOLD_WAITED_MS, LEASEHOLD_ACQUIRED_AT
  LEASEHOLD_URL        or LEASEHOLD_URL_FILE: `leasehold` in CMD asks the same store

If the lease is lost, CMD and all processes of its group are stopped before another client can get
the lock, even if this process is killed or stopped. Processes that CMD leaves in its group keep the
lock until they end, unless --release-on-exit is given.

  leasehold run --wait 5m db-migrate -- ./migrate.sh
  leasehold run --try --skip nightly -- ./report.sh     only one of many hosts runs it
  leasehold run --once-per 1d nightly -- ./report.sh    and once a day, whatever their clocks say
  leasehold run -c 'make && make install' build";

impl Run {
    /// True if the timestamp protocol is chosen.
    pub(crate) fn has_timestamp(&self) -> Result<bool, Exit> {
        let chosen = self.timestamp.is_chosen(&self.how);
        let chosen = chosen.and_then(|chosen| self.once.check(chosen).map(|()| chosen));
        let chosen = chosen.map_err(|why| self.refuse(&why))?;
        let kind = [
            (self.kind.shared, "--shared"),
            (self.kind.slots.is_some(), "--slots"),
        ];
        if let Some((_, kind)) = kind.iter().find(|(given, _)| *given) {
            if chosen {
                let why = "other programs of the timestamp protocol hold a lock alone";
                return Err(self.refuse(&format!(
                    "{kind} cannot be used with --protocol timestamp: {why}"
                )));
            }
            if self.once.is_chosen() {
                let why = "the work of a firing holds its lock alone";
                return Err(self.refuse(&format!("{kind} cannot be used with --once: {why}")));
            }
        }
        if self.kind.also.is_empty() {
            return Ok(chosen);
        }
        if chosen {
            let why = "with --protocol timestamp no queue keeps those who take several locks from waiting for each other";
            return Err(self.refuse(&format!("--also cannot be used {why}")));
        }
        if self.once.is_chosen() {
            let why = "the success is marked in a step that checks one lock only";
            return Err(self.refuse(&format!("--also cannot be used with --once: {why}")));
        }
        Ok(chosen)
    }

    /// The verb with its locks but the first, to paste.
    pub(crate) fn verb(&self) -> String {
        let verb = if self.elects { "elect" } else { "run" };
        format!("{verb}{}", self.kind.words())
    }

    /// The option that limits how long the lock is held.
    pub(crate) fn limit(&self) -> &'static str {
        if self.elects {
            "--max-term"
        } else {
            "--max-hold"
        }
    }

    fn refuse(&self, what: &str) -> Exit {
        exit!(
            exit::USAGE,
            "{what} (exit {})\n    next    {}",
            exit::USAGE,
            self.usage()
        )
    }

    fn usage(&self) -> &'static str {
        if self.elects { ELECT_USAGE } else { USAGE }
    }

    /// The lock name.
    pub(crate) fn lock(&self) -> Result<&str, Exit> {
        let missing = if self.command.shell.is_some() {
            "no lock: its name comes after -c STRING"
        } else {
            "no lock and no command"
        };
        let name = self
            .command
            .words
            .first()
            .ok_or_else(|| self.refuse(missing))?;
        name.to_str().ok_or_else(|| {
            self.refuse(&format!(
                "invalid lock name {}: is not UTF-8",
                messages::shown(name)
            ))
        })
    }

    /// The wait options. `--skip` without a limit does not wait.
    pub(crate) fn waiting(&self) -> WaitArgs {
        WaitArgs {
            once: self.how.once || self.skip && self.how.wait.is_none(),
            quiet: self.how.quiet || self.skip,
            ..self.how.clone()
        }
    }

    /// The limits for stopping the command.
    pub(crate) fn limits(&self, ttl: Duration) -> Result<StopLimits, Exit> {
        if ttl < SHORTEST_TTL {
            return Err(self.refuse(&format!(
                "a TTL of {}ms is too short to run a command under: a pause of a few milliseconds would stop it; at least {}ms",
                ttl.as_millis(),
                SHORTEST_TTL.as_millis()
            )));
        }
        let limits = StopLimits::of(ttl, self.max_hold);
        let Some(grace) = self.command.grace else {
            return Ok(self.without_asking(limits));
        };
        let limits = limits.with_grace(grace);
        if !limits.leave_time(ttl) {
            return Err(self.refuse(&format!(
                "--grace {} is too long: it must be less than a third of the TTL ({})",
                messages::span(grace),
                messages::span(ttl)
            )));
        }
        if self.max_hold.is_some_and(|max_hold| grace >= max_hold) {
            return Err(self.refuse(&format!("--grace must be less than {}", self.limit())));
        }
        Ok(self.without_asking(limits))
    }

    /// The warning of a TTL so short that a busy host may not kill the command in time; `None` for others.
    pub(crate) fn warning(&self, ttl: Duration, limits: StopLimits) -> Option<String> {
        if ttl >= SHORT_TTL || matches!(self.command.on_lost, OnLost::Warn) || self.how.quiet {
            return None;
        }
        // The lease ends for its holder 1 % of the TTL and 2 ms before it does in the store.
        let left = limits.margin + ttl / 100 + Duration::from_millis(2);
        Some(format!(
            "warning: with a TTL of {} the command is killed {} ms before others can get the lock; a busy host can stall for longer\n    next    use a TTL of {} or more, and 30s if an overlap does harm",
            humantime::format_duration(ttl),
            left.as_millis(),
            humantime::format_duration(SHORT_TTL)
        ))
    }

    /// Without a stop signal there is no grace.
    fn without_asking(&self, limits: StopLimits) -> StopLimits {
        if self.command.on_lost == OnLost::Kill {
            limits.with_grace(Duration::ZERO)
        } else {
            limits
        }
    }

    /// The command and its arguments.
    pub(crate) fn command(&self) -> Result<Cow<'_, [OsString]>, Exit> {
        let words = self.command.words.get(1..).unwrap_or_default();
        let command = if words.first().is_some_and(|word| word == "--") {
            &words[1..]
        } else {
            words
        };
        if let Some(string) = &self.command.shell {
            if !command.is_empty() {
                return Err(self.refuse("give either a command or -c STRING, not both"));
            }
            return Ok(Cow::Owned(vec!["sh".into(), "-c".into(), string.clone()]));
        }
        if command.is_empty() {
            let lock = messages::quoted(self.lock()?);
            return Err(exit!(
                exit::USAGE,
                "no command after the lock {lock} (exit {}); if that is the command, the name is missing: is a variable unset?
    to hold it without a command    leasehold hold LOCK\n    next    {}",
                exit::USAGE,
                self.usage()
            ));
        }
        Ok(Cow::Borrowed(command))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use nix::sys::signal::Signal;

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
    fn a_ttl_that_a_busy_host_may_overrun_is_warned_of() {
        let warning = |words: &[&str], ms| {
            let (run, ttl) = (run(words), Duration::from_millis(ms));
            let limits = run.limits(ttl).expect("long enough");
            run.warning(ttl, limits)
        };
        let said = warning(&["x", "true"], 2_000).expect("a warning");
        assert!(said.contains("a TTL of 2s"), "{said}");
        assert!(said.contains("killed 72 ms before"), "{said}");
        assert!(said.contains("use a TTL of 5s"), "{said}");
        assert_eq!(warning(&["x", "true"], 5_000), None);
        assert!(warning(&["--skip", "x", "true"], 2_000).is_some());
        assert_eq!(warning(&["--quiet", "x", "true"], 2_000), None);
        assert_eq!(warning(&["--on-lost", "warn", "x", "true"], 2_000), None);
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
}

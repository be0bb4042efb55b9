//! The wait options, shared by all verbs that take a lock.

use std::env;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::{Clock, Moment};

use crate::exit::{Exit, USAGE, exit};
use crate::help;
use crate::messages::quoted;
use crate::values::duration;

const WAIT_HELP: &str = "Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124 [env: LEASEHOLD_WAIT]";

const TRY_HELP: &str = "Do not wait: if the lock is busy, exit with 75";

/// When the time limit of a wait begins, for a client that was connected at `connected`. A connection that is made within a second takes
/// nothing of it.
pub(crate) fn counts_from(begun: Moment, connected: Moment) -> Moment {
    if connected.since(begun) < Duration::from_secs(1) {
        connected
    } else {
        begun
    }
}

/// The help of a time limit in `--help`; `-h` has less room.
pub(crate) fn with_connect_note(help: &str) -> String {
    format!(
        "{help}\n\nWith a limit, run, hold, acquire and wait also wait for a server that is out of reach, loads or restarts. A server that does not answer the connection takes up to twice --request-timeout more (4s), and the exit code is 69"
    )
}

/// The wait options of every verb that takes a lock.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    #[arg(short = 'n', long = "try", conflicts_with = "wait", help = TRY_HELP, long_help = with_connect_note(TRY_HELP))]
    pub(crate) once: bool,

    #[arg(short, long, value_name = "DUR", value_parser = duration, help = WAIT_HELP, long_help = with_connect_note(WAIT_HELP))]
    pub(crate) wait: Option<Duration>,

    /// When the wait begins.
    #[arg(skip = Clock::system().now())]
    pub(crate) begun: Moment,

    /// Purpose of this run, shown to other waiters; by default the name of the command, or of the verb if there
    /// is none
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_NOTE",
        hide_env_values = true,
        help_heading = help::WAITING
    )]
    pub(crate) note: Option<String>,

    /// Print only errors, nothing about waiting or busy locks
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Wait only if fewer than N others wait, else exit with 75
    #[arg(long, value_name = "N", help_heading = help::WAITING)]
    pub(crate) max_waiters: Option<u32>,

    /// Progress while waiting: auto, plain (lines, as in a log) or none
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = help::WAITING
    )]
    pub(crate) progress: ProgressMode,
}

impl WaitArgs {
    /// The time that is left: an outage of the store is part of the wait.
    pub(crate) fn limit(&self) -> Result<Option<Duration>, Exit> {
        let now = Clock::system().now();
        let waited = now.since(counts_from(self.begun, now));
        let whole = self.whole_limit()?;
        Ok(whole.map(|limit| limit.saturating_sub(waited)))
    }

    /// Read here and not by clap, which would see a conflict of the variable with `--try`.
    fn whole_limit(&self) -> Result<Option<Duration>, Exit> {
        if self.once || self.wait.is_some() {
            return Ok(self.wait);
        }
        let Some(text) = env::var("LEASEHOLD_WAIT")
            .ok()
            .filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        duration(&text).map(Some).map_err(|why| {
            let text = quoted(&text);
            exit!(USAGE, "invalid LEASEHOLD_WAIT {text}: {why} (exit {USAGE})")
        })
    }

    /// True if `ahead` waiters are too many to join the queue.
    pub(crate) fn is_full(&self, ahead: u32) -> bool {
        self.max_waiters.is_some_and(|most| ahead >= most)
    }
}

/// The display of progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Chosen by the terminal.
    #[default]
    Auto,
    Plain,
    None,
}

/// The parts of a command that tries again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryHint<'a> {
    /// The verb with its required options.
    pub(crate) verb: &'a str,
    /// The store options and the lock, quoted for a shell.
    pub(crate) lock: &'a str,
    /// The text after the lock.
    pub(crate) command: &'a str,
}

/// A request for a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) ttl: Duration,
    pub(crate) note: &'a str,
    pub(crate) how: &'a WaitArgs,
    /// Asks for the holder of a busy lock, also if no message names it.
    pub(crate) wants_holder: bool,
    /// The command that tries again, for messages.
    pub(crate) again: RetryHint<'a>,
}

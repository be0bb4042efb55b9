//! How to wait, and for what. Must never ask a store.

use std::env;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::exit::{Exit, USAGE};
use crate::messages::quoted;
use crate::values::duration;

const WAIT_HELP: &str = "Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124 [env: LEASEHOLD_WAIT]";

const TRY_HELP: &str = "Do not wait: if the lock is busy, exit with 75";

/// The text of `--help` on a limit; `-h` has less room.
pub(crate) fn with_silence(help: &str) -> String {
    format!(
        "{help}\n\nIt begins once the store is connected. A server that says nothing at that takes up to 4s more, and the exit code is 69"
    )
}

/// How to wait, for every verb that takes a lock.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// Do not wait: if the lock is busy, exit with 75
    #[arg(short = 'n', long = "try", conflicts_with = "wait", help = TRY_HELP, long_help = with_silence(TRY_HELP))]
    pub(crate) once: bool,

    /// Wait for at most this long (5s, 2h; a bare number is seconds), then exit with 124 [env: `LEASEHOLD_WAIT`]
    #[arg(short, long, value_name = "DUR", value_parser = duration, help = WAIT_HELP, long_help = with_silence(WAIT_HELP))]
    pub(crate) wait: Option<Duration>,

    /// What this is doing, for those who wait; by default the name of the command, or of the verb if there is none
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_NOTE",
        hide_env_values = true
    )]
    pub(crate) note: Option<String>,

    /// Say nothing about waiting and busy locks, only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Wait only if fewer than N wait already, else exit with 75
    #[arg(long, value_name = "N")]
    pub(crate) max_waiters: Option<u32>,

    /// How to show the waiting: auto, plain (lines, as in a log) or none
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub(crate) progress: ProgressMode,
}

impl WaitArgs {
    /// The limit of the waiting. Not by clap, for which a variable and `--try` would be a contradiction.
    pub(crate) fn limit(&self) -> Result<Option<Duration>, Exit> {
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
            Exit::saying(
                USAGE,
                format!("invalid LEASEHOLD_WAIT {text}: {why} (exit {USAGE})"),
            )
        })
    }

    /// Whether a line in which `ahead` wait already is too long to join.
    pub(crate) fn is_full(&self, ahead: u32) -> bool {
        self.max_waiters.is_some_and(|most| ahead >= most)
    }
}

/// How the waiting is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// As the terminal allows.
    #[default]
    Auto,
    Plain,
    None,
}

/// The words of another try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryHint<'a> {
    /// The verb with what it needs.
    pub(crate) verb: &'a str,
    /// The lock and where it lives, as they can be pasted.
    pub(crate) lock: &'a str,
    /// What comes after the lock.
    pub(crate) command: &'a str,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) ttl: Duration,
    pub(crate) note: &'a str,
    pub(crate) how: &'a WaitArgs,
    /// What to type for another try.
    pub(crate) again: RetryHint<'a>,
}

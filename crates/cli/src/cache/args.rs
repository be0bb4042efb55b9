//! The arguments of `leasehold cache get-or-refresh`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold_cache::Policy;

use super::load::GRACE;
use crate::exit;
use crate::store::StoreArgs;
use crate::values::{duration, hold, size, ttl};

/// Disables the library's time limit. This verb has its own, which applies only while waiting for another
/// process.
const FOR_EVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);

const ABOUT: &str = "\
Fresh value: prints the stored bytes and does not run CMD. Stale value: prints it at once, and one process of
all hosts refreshes it in the background. No value: one process of all hosts runs CMD, the others wait for it.

CMD gets no stdin, writes its stderr to stderr, and its stdout is the value. Any status but 0 is a failure:
nothing is stored, and no host runs CMD again for --back-off, twice as long each time. Then the stale value is
printed, with a message on stderr and status 0. Without a stale value, or with --must-be-fresh, the status is
CMD's own if it ran here, and 75 if it failed on another host. A background refresh ends with the systemd unit,
container or CI step that it was started in: use --refresh inline there.

  leasehold cache get-or-refresh report --fresh 1m --stale 1h -- ./report.sh
  weather=$(leasehold cache get-or-refresh weather:paris -- curl -sf https://wttr.in/paris)

In the table below, \"the lock\" means the right to run CMD for this KEY.";

fn after_help() -> String {
    format!("{ABOUT}\n\n{}", exit::HELP)
}

/// Print the stored value, or run the command to make a new one if no other process does
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct GetOrRefresh {
    #[command(flatten)]
    pub(super) store: StoreArgs,

    /// How long a value is fresh; up to a tenth of this time is taken off at random
    #[arg(long, value_name = "DUR", value_parser = hold, default_value = "60s")]
    pub(super) fresh: Duration,

    /// How long after that a stale value may still be printed, while it is refreshed or CMD fails
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "10m")]
    pub(super) stale: Duration,

    /// Wait for at most this long for another process to run CMD, then exit with 124
    #[arg(short, long, value_name = "DUR", value_parser = duration, default_value = "30s")]
    pub(super) wait: Duration,

    /// Never print a stale value: wait for a fresh one
    #[arg(long)]
    pub(super) must_be_fresh: bool,

    /// How to refresh a stale value: background, or inline (wait for the fresh one)
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub(super) refresh: RefreshMode,

    /// A file to which a background refresh appends CMD's stderr; by default it is discarded
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) refresh_log: Option<PathBuf>,

    /// Stop CMD after this long (TERM, after 5s KILL); this counts as a failure with 124
    #[arg(long, value_name = "DUR", value_parser = hold, default_value = "10m")]
    pub(super) timeout: Duration,

    /// Stop CMD if it prints more than this (at most 24MiB); this counts as a failure with 78
    #[arg(long, value_name = "SIZE", value_parser = max_size, default_value = "16MiB", hide_short_help = true)]
    pub(super) max_size: usize,

    /// How long no host runs CMD again after a failure; up to half of it is taken off at random, and it doubles
    /// with each failure in a row, up to 30s
    #[arg(long, value_name = "DUR", value_parser = ttl, default_value = "1s", hide_short_help = true)]
    pub(super) back_off: Duration,

    /// What to do if the store does not answer: fail (exit with 69), or run (run CMD, on every host)
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(super) if_unavailable: IfUnavailable,

    /// The name of the value
    pub(super) key: String,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

/// How a stale value is refreshed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum RefreshMode {
    #[default]
    Background,
    Inline,
}

/// The action if the store does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum IfUnavailable {
    #[default]
    Fail,
    Run,
}

impl GetOrRefresh {
    /// The library's policy for the entry.
    pub(super) fn policy(&self) -> Policy {
        Policy::default()
            .fresh_for(self.fresh)
            .stale_for(self.stale)
            .wait_at_most(FOR_EVER)
            .stale_if_error(false)
            .load_at_most(self.timeout.saturating_add(GRACE))
            .back_off(self.back_off)
            // No early refresh: this process ends before it could load the next value.
            .eagerness(0.0)
    }
}

/// Parses a size, up to the maximal size of a value.
fn max_size(text: &str) -> Result<usize, String> {
    let most = leasehold_cache::MOST_BYTES;
    match size(text)? {
        bytes if bytes > most => Err(format!(
            "is more than {} MiB, the most that is stored",
            most >> 20
        )),
        bytes => Ok(bytes),
    }
}

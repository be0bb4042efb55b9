//! What was typed after `cache get-or-refresh`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::cache::Policy;

use super::load::GRACE;
use crate::exit;
use crate::store::StoreArgs;
use crate::values::{duration, hold, size, ttl};

/// No limit of the library's: patience is ours, since it ends only for who waits for another.
const FOR_EVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);

const ABOUT: &str = "\
Fresh: prints the stored bytes, and does not run CMD. Stale: prints them at once, and one on all hosts refreshes
them in the background. Missing: one on all hosts runs CMD, the others wait for what it prints.

CMD gets no stdin; its stderr is ours, its stdout the value. It fails by any status but 0: nothing is stored,
and no host runs it again for --back-off, twice as long each time. The stale value is printed then, with a
word on stderr and status 0; if there is none, or --must-be-fresh is given, the status is CMD's own if it ran
here, and 75 if another host reports its failure. A background refresh ends with the systemd unit, container or
CI step that it was started in: use --refresh inline there.

  leasehold cache get-or-refresh report --fresh 1m --stale 1h -- ./report.sh
  weather=$(leasehold cache get-or-refresh weather:paris -- curl -sf https://wttr.in/paris)

In the table below, \"the lock\" means the right to run CMD for this KEY.";

fn after_help() -> String {
    format!("{ABOUT}\n\n{}", exit::help())
}

/// Print what is stored, or what a command prints if nobody else runs it
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct GetOrRefresh {
    #[command(flatten)]
    pub(super) store: StoreArgs,

    /// How long what CMD prints is used as it is; up to a tenth of it is taken off at random
    #[arg(long, value_name = "DUR", value_parser = hold, default_value = "60s")]
    pub(super) fresh: Duration,

    /// How long after that it may still serve, while it is refreshed or CMD fails
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "10m")]
    pub(super) stale: Duration,

    /// Wait for at most this long for another to run CMD, then exit with 124
    #[arg(short, long, value_name = "DUR", value_parser = duration, default_value = "30s")]
    pub(super) wait: Duration,

    /// Take no stale value, whatever happens: wait for a fresh one
    #[arg(long)]
    pub(super) must_be_fresh: bool,

    /// How to refresh a stale value
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help = "How to refresh a stale value: background, or inline (wait for the fresh one)"
    )]
    pub(super) refresh: RefreshMode,

    /// Where a background refresh writes what CMD says on stderr, at the end of the file; by default nowhere
    #[arg(long, value_name = "FILE")]
    pub(super) refresh_log: Option<PathBuf>,

    /// Stop CMD after this long (TERM, after 5s KILL); it has failed then, with 124
    #[arg(long, value_name = "DUR", value_parser = hold, default_value = "10m")]
    pub(super) timeout: Duration,

    /// Stop CMD if it prints more than this; it has failed then, with 78. At most 24MiB
    #[arg(long, value_name = "SIZE", value_parser = max_size, default_value = "16MiB")]
    pub(super) max_size: usize,

    /// How long no host runs CMD again after it has failed, up to half of it less at random; twice as long each time in a
    /// row, up to 30s
    #[arg(long, value_name = "DUR", value_parser = ttl, default_value = "1s")]
    pub(super) back_off: Duration,

    /// What to do if the store does not answer
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help = "What to do if the store does not answer: fail (exit with 69), or run (run CMD, as every host then does)"
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

/// What is done without a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum IfUnavailable {
    #[default]
    Fail,
    Run,
}

impl GetOrRefresh {
    /// How the entry is kept.
    pub(super) fn policy(&self) -> Policy {
        Policy::default()
            .fresh_for(self.fresh)
            .stale_for(self.stale)
            .wait_at_most(FOR_EVER)
            .stale_if_error(false)
            .load_at_most(self.timeout.saturating_add(GRACE))
            .back_off(self.back_off)
            // Nobody would be left to see to the next value.
            .eagerness(0.0)
    }
}

/// A size that can be stored.
fn max_size(text: &str) -> Result<usize, String> {
    let most = leasehold::cache::MOST_BYTES;
    match size(text)? {
        bytes if bytes > most => Err(format!(
            "is more than {} MiB, the most that is stored",
            most >> 20
        )),
        bytes => Ok(bytes),
    }
}

//! The arguments of `leasehold doctor`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::diagnosis::Purpose;
use crate::store::StoreArgs;
use crate::values;

const TTL_HELP: &str = "The TTL that the locks have: most limits are a share of it [env: LEASEHOLD_TTL] [default: 30s]";

const ABOUT: &str = "\
Prints what is wrong, the worst first, and what to do about it. What the server refuses to tell is
\"unknown\" and never a failure. It takes 5 s, or less with --quick. A scratch lock
leasehold:doctor:... is taken and freed; only the fence counter leasehold:fence stays. Nothing
else is changed. docs/reference/doctor.md lists the checks.
  leasehold doctor --for correctness
  leasehold doctor --acl --keys 'jobs:*'

Exit codes: 0 no failure; 78 at least one, or no store; 69 the store does not answer; 77 it refused
the login; 64 wrong use";

/// Check whether a store is fit for locks
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(super) store: StoreArgs,

    /// What the locks are for: efficiency (two at once are a cost) or correctness (two at once are damage)
    #[arg(
        long = "for",
        value_name = "PURPOSE",
        value_enum,
        default_value_t = For::Efficiency,
        hide_possible_values = true
    )]
    pub(super) purpose: For,

    #[arg(long, value_name = "DUR", value_parser = values::ttl, help = TTL_HELP)]
    pub(super) ttl: Option<Duration>,

    /// One JSON document instead of text (leasehold.doctor/1)
    #[arg(long)]
    pub(super) json: bool,

    /// List what is in order, too
    #[arg(long)]
    pub(super) all: bool,

    /// Leave out what takes seconds: evictions going on, jumping clocks, a host that stalls
    #[arg(long)]
    pub(super) quick: bool,

    /// Take warnings for failures
    #[arg(long, hide_short_help = true)]
    pub(super) strict: bool,

    /// Leave out a check; may be repeated
    #[arg(long, value_name = "ID", hide_short_help = true)]
    pub(super) ignore: Vec<String>,

    /// Print only the ACL line for a user who may do what locks need, and nothing else
    #[arg(long, conflicts_with_all = ["json", "all"])]
    pub(super) acl: bool,

    /// The names of the locks that this user may use, as a pattern, without namespace and template: jobs:*
    #[arg(long, value_name = "PATTERN", default_value = "*", value_parser = pattern, hide_short_help = true)]
    pub(super) keys: String,
}

/// The purpose of the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum For {
    /// Double work is a cost
    Efficiency,
    /// Double work is damage
    Correctness,
}

impl From<For> for Purpose {
    fn from(purpose: For) -> Self {
        match purpose {
            For::Efficiency => Self::Efficiency,
            For::Correctness => Self::Correctness,
        }
    }
}

/// An ACL rule is one word.
fn pattern(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("must be one word, as in jobs:*".into());
    }
    Ok(text.to_owned())
}

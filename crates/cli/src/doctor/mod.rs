//! `leasehold doctor`: whether a store is fit for locks. Must never change a store, but for a scratch lock of which
//! only the fence counter stays, nor fail one for what it does not tell.

mod print;

use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::doctor::{Examination, Purpose, Report, State};
use leasehold::{Error, StoreErrorKind};

use crate::exit::{CONFIG, DENIED, Exit, MORE_RESOURCES, SOFTWARE, UNAVAILABLE};
use crate::session::in_runtime;
use crate::store::StoreArgs;
use crate::{out, text, values};

const TTL_HELP: &str = "The TTL that the locks have: most limits are a share of it [env: LEASEHOLD_TTL] [default: 30s]";

const ABOUT: &str = "\
Prints what is wrong, the worst first, and what to do about it. What the server refuses to tell is
\"unknown\" and never a failure. It takes 5 s, or less with --quick. A scratch lock
leasehold:doctor:... is taken and freed; only the fence counter leasehold:fence stays. Nothing
else is changed. docs/doctor.md lists the checks.
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
    store: StoreArgs,

    /// What the locks are for: efficiency (two at once are a cost) or correctness (two at once are damage)
    #[arg(
        long = "for",
        value_name = "PURPOSE",
        value_enum,
        default_value_t = For::Efficiency,
        hide_possible_values = true
    )]
    purpose: For,

    /// The TTL that the locks have: most limits are a share of it [env: `LEASEHOLD_TTL`] [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = values::ttl, help = TTL_HELP)]
    ttl: Option<Duration>,

    /// One JSON document instead of text (leasehold.doctor/1)
    #[arg(long)]
    json: bool,

    /// List what is in order, too
    #[arg(long)]
    all: bool,

    /// Leave out what takes seconds: evictions going on, jumping clocks, a host that stalls
    #[arg(long)]
    quick: bool,

    /// Take warnings for failures
    #[arg(long)]
    strict: bool,

    /// Leave out a check; may be repeated
    #[arg(long, value_name = "ID")]
    ignore: Vec<String>,

    /// Print only the ACL line for a user who may do what locks need, and nothing else
    #[arg(long, conflicts_with_all = ["json", "all"])]
    acl: bool,

    /// The names of the locks that this user may use, as a pattern, without namespace and template: jobs:*
    #[arg(long, value_name = "PATTERN", default_value = "*", value_parser = pattern)]
    keys: String,
}

/// What locks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum For {
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

/// Examines, and says what was found.
pub(crate) fn doctor(args: &Doctor) -> Exit {
    examined(args).unwrap_or_else(|exit| exit)
}

fn examined(args: &Doctor) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl)?;
    let how = Examination::new(ttl)
        .quick(args.quick || args.acl)
        .keys(&args.keys);
    let mut report = in_runtime(async {
        let report = target.examine(&how).await;
        report.map_err(|error| unexamined(&error))
    })?;
    if args.acl {
        return acl(&report);
    }
    for id in &args.ignore {
        if report.findings.iter().all(|finding| finding.id != id) {
            text::say(&format!(
                "warning: --ignore {}: no such check was made; `leasehold doctor --all` lists them",
                text::quoted(id)
            ));
        }
    }
    report
        .findings
        .retain(|finding| !args.ignore.iter().any(|id| id == finding.id));
    let code = verdict(&report, args);
    tell(&if args.json {
        print::json(&report, args, ttl, code)
    } else {
        print::text(&report, args, ttl, code)
    });
    Ok(Exit::quiet(code))
}

fn tell(text: &str) {
    // Whoever reads no further (`leasehold doctor | head -1`) has the exit code.
    let _read: std::io::Result<()> = out::write(text.as_bytes());
}

/// The code for what was found.
fn verdict(report: &Report, args: &Doctor) -> u8 {
    let worst = report
        .findings
        .iter()
        .map(|finding| finding.state(args.purpose.into()))
        .max();
    let bad = if args.strict {
        State::Warn
    } else {
        State::Fail
    };
    if worst >= Some(bad) { CONFIG } else { 0 }
}

fn acl(report: &Report) -> Result<Exit, Exit> {
    let Some(line) = &report.acl else {
        return Err(Exit::saying(
            CONFIG,
            format!(
                "{} has no users of its own, so there is no ACL line (exit {CONFIG})",
                report.store
            ),
        ));
    };
    tell(&format!("{line}\n"));
    Ok(Exit::quiet(0))
}

/// There is nothing to judge.
fn unexamined(error: &Error) -> Exit {
    let Error::Store(store) = error else {
        return error.clone().into();
    };
    let (code, advice) = match store.kind {
        StoreErrorKind::Denied => (
            DENIED,
            "check user and password in the URL, and whether that user is on (ACL)",
        ),
        StoreErrorKind::Protocol => (CONFIG, "check that the URL names a Redis or Valkey"),
        StoreErrorKind::Exhausted => (SOFTWARE, MORE_RESOURCES),
        StoreErrorKind::Closed => (SOFTWARE, "this is a fault of leasehold"),
        _ => (
            UNAVAILABLE,
            "check that the server runs and that this host may reach it",
        ),
    };
    Exit::saying(
        code,
        format!(
            "{} (exit {code})\n    There was nothing to examine.\n    next    {advice}",
            text::without_passwords(&store.to_string())
        ),
    )
}

//! `leasehold check`: tells whether the lease is still held. Both answers need the confirmation of the store.

use std::time::Duration;

use clap::Args;
use leasehold::Error;
use serde::Serialize;

use super::lease::{LeaseArgs, begin, gone, left, unknown, unprinted};
use crate::exit::{Exit, LOST};
use crate::messages::{quoted, span};
use crate::output;
use crate::store::StoreArgs;
use crate::values::duration;
use crate::view::millis;

const ABOUT: &str = "\
Exit 0: you hold the lock for at least --min more. Exit 79: you do not. Exit 69: unknown, since the
store does not answer; continue only if the work is safe without the lock. Use it just before a step
that cannot be undone, with the time that the step takes:
  leasehold check --min 30s && ./publish

Other exit codes: 64 wrong usage, or no lock or token; 77 the store refuses user, password or permission;
78 no store";

/// Check whether the lease is still held: exit 0 if so, 79 if not
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Check {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// Required rest of the lease (5s, 2h; a bare number is seconds)
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "0")]
    min: Duration,

    /// Print one JSON document (leasehold.check/1), for both answers
    #[arg(long)]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Checked<'a> {
    schema: &'static str,
    lock: &'a str,
    /// True if the lease is held for at least `min_ms` more.
    ok: bool,
    held: bool,
    expires_in_ms: u64,
    min_ms: u64,
    fence: Option<u64>,
}

/// Runs the verb.
pub(crate) fn check(args: &Check) -> Exit {
    let (named, target) = match begin(&args.store, &args.lease) {
        Ok(begun) => begun,
        Err(exit) => return exit,
    };
    let lock = named.lock.clone();
    named.with(target, async |detached| {
        let (exit, tenure) = match detached.check().await {
            Ok(tenure) if left(tenure) > args.min => (Exit::quiet(0), Some(tenure)),
            Ok(tenure) => (too_short(args, &lock, left(tenure)), Some(tenure)),
            Err(Error::Lost(lost)) => (gone(&lost), None),
            Err(error) => {
                return Err(unknown(
                    error,
                    "It is not known whether you hold the lock. Check again, or continue only if the work is safe without the lock.",
                ));
            }
        };
        if args.json {
            let checked = Checked {
                schema: "leasehold.check/1",
                lock: &lock,
                ok: exit.code() == 0,
                held: tenure.is_some(),
                expires_in_ms: tenure.map_or(0, |tenure| millis(left(tenure))),
                min_ms: millis(args.min),
                fence: tenure.map(|tenure| tenure.fence.get()),
            };
            // Strings and numbers can always be serialized.
            let text = output::json(&checked).unwrap_or_default() + "\n";
            output::write(text.as_bytes()).map_err(|error| unprinted(&error))?;
        }
        Ok(exit)
    })
}

fn too_short(args: &Check, lock: &str, left: Duration) -> Exit {
    Exit::saying(
        LOST,
        format!(
            "you hold {} for {} more, which is not more than {} (exit {LOST})\n    next    leasehold renew --ttl DUR {}",
            quoted(lock),
            span(left),
            span(args.min),
            args.store.again_with(lock)
        ),
    )
}

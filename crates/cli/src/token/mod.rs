//! `leasehold acquire`, `renew`, `release`, `check`: a lease that outlives its process and is identified by a
//! token, for the steps of a pipeline. Nothing renews it automatically.

mod acquire;
mod lease;

use std::time::Duration;

use clap::Args;
use leasehold::Error;
use serde::Serialize;

pub(crate) use self::acquire::{Acquire, acquire};
use self::lease::{LeaseArgs, gone, left, unknown, unprinted, with_lease};
use crate::exit::{Exit, LOST, exit};
use crate::messages::{quoted, span};
use crate::output;
use crate::store::StoreArgs;
use crate::values::{duration, ttl};
use crate::view::millis;

const RENEW_HELP: &str = "\
The time counts from now and replaces the rest of the lease. A lease that has ended is not taken again.
  leasehold renew --ttl 20m

Exit codes: 0 renewed; 79 the lease had ended; 64 wrong usage, or no lock or token; 69 the store does
not answer; 77 it refuses user, password or permission; 78 no store";

/// Extend a lease to --ttl from now, by its token
#[derive(Debug, Args)]
#[command(after_help = RENEW_HELP)]
pub(crate) struct Renew {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// How long the lease lasts from now, 10ms to 24h
    #[arg(long, value_name = "DUR", value_parser = ttl)]
    ttl: Duration,
}

/// Runs `leasehold renew`. An expired lease is never taken again.
pub(crate) fn renew(args: &Renew) -> Exit {
    with_lease(&args.store, &args.lease, async |_, lease| {
        match lease.renew(args.ttl).await {
            Ok(_) => Ok(Exit::quiet(0)),
            Err(Error::Lost(lost)) => Err(gone(&lost)),
            Err(error) => Err(unknown(
                error,
                "The renewal is not confirmed: rely on the previous deadline only, and try again.",
            )),
        }
    })
}

const RELEASE_HELP: &str = "\
Frees the lock at once for the first in line:
  leasehold release              at the end of the work
  leasehold release --if-held    in a clean-up step

Exit codes: 0 released; 79 the lease had ended; 64 wrong usage, or no lock or token; 69 the store does
not answer: the TTL ends the lease at the latest; 77 it refuses user, password or permission; 78 no store";

/// Release a lock, by its token
#[derive(Debug, Args)]
#[command(after_help = RELEASE_HELP)]
pub(crate) struct Release {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// Exit 0 silently if the lease is no longer held: for a clean-up step that may run twice. By default that
    /// is exit 79, since the work may have been unprotected
    #[arg(long)]
    if_held: bool,
}

/// Runs `leasehold release`. A lease that had already ended is reported as lost.
pub(crate) fn release(args: &Release) -> Exit {
    with_lease(&args.store, &args.lease, async |_, lease| {
        match lease.release().await {
            Ok(()) => Ok(Exit::quiet(0)),
            Err(Error::Lost(_)) if args.if_held => Ok(Exit::quiet(0)),
            Err(Error::Lost(lost)) => Err(gone(&lost)),
            Err(error) => Err(unknown(
                error,
                "The release is not confirmed: try again. At the latest the TTL ends the lease; until then other clients wait.",
            )),
        }
    })
}

const CHECK_HELP: &str = "\
Exit 0: you hold the lock for at least --min more. Exit 79: you do not. Exit 69: unknown, since the
store does not answer; continue only if the work is safe without the lock. Use it just before a step
that cannot be undone, with the time that the step takes:
  leasehold check --min 30s && ./publish

Other exit codes: 64 wrong usage, or no lock or token; 77 the store refuses user, password or permission;
78 no store";

/// Check whether the lease is still held: exit 0 if so, 79 if not
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
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

/// Runs `leasehold check`. Both answers need the confirmation of the store.
pub(crate) fn check(args: &Check) -> Exit {
    with_lease(&args.store, &args.lease, async |lock, lease| {
        let (exit, status) = match lease.check().await {
            Ok(status) if left(status) > args.min => (Exit::quiet(0), Some(status)),
            Ok(status) => (too_short(args, lock, left(status)), Some(status)),
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
                lock,
                ok: exit.code() == 0,
                held: status.is_some(),
                expires_in_ms: status.map_or(0, |status| millis(left(status))),
                min_ms: millis(args.min),
                fence: status.map(|status| status.fence.get()),
            };
            // Strings and numbers can always be serialized.
            let text = output::json(&checked).unwrap_or_default() + "\n";
            output::write(text.as_bytes()).map_err(|error| unprinted(&error))?;
        }
        Ok(exit)
    })
}

fn too_short(args: &Check, lock: &str, left: Duration) -> Exit {
    exit!(
        LOST,
        "you hold {} for {} more, which is not more than {} (exit {LOST})\n    next    leasehold renew --ttl DUR {}",
        quoted(lock),
        span(left),
        span(args.min),
        args.store.again_with(lock)
    )
}

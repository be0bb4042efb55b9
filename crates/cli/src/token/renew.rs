//! `leasehold renew`: extends a lease by its token. An expired lease is never taken again.

use std::time::Duration;

use clap::Args;
use leasehold::Error;

use super::lease::{LeaseArgs, begin, gone, unknown};
use crate::exit::Exit;
use crate::store::StoreArgs;
use crate::values::ttl;

const ABOUT: &str = "\
The time counts from now and replaces the rest of the lease. A lease that has ended is not taken again.
  leasehold renew --ttl 20m

Exit codes: 0 renewed; 79 the lease had ended; 64 wrong usage, or no lock or token; 69 the store does
not answer; 77 it refuses user, password or permission; 78 no store";

/// Extend a lease to --ttl from now, by its token
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Renew {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// How long the lease lasts from now, 10ms to 24h
    #[arg(long, value_name = "DUR", value_parser = ttl)]
    ttl: Duration,
}

/// Runs the verb.
pub(crate) fn renew(args: &Renew) -> Exit {
    let (named, target) = match begin(&args.store, &args.lease) {
        Ok(begun) => begun,
        Err(exit) => return exit,
    };
    named.with(target, async |detached| {
        match detached.renew(args.ttl).await {
            Ok(_) => Ok(Exit::quiet(0)),
            Err(Error::Lost(lost)) => Err(gone(&lost)),
            Err(error) => Err(unknown(
                error,
                "The renewal is not confirmed: rely on the previous deadline only, and try again.",
            )),
        }
    })
}

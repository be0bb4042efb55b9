//! `leasehold renew`: more time for a lease. Must never take a lock again that has expired.

use std::time::Duration;

use clap::Args;
use leasehold::Error;

use super::lease::{LeaseArgs, begin, gone, unknown};
use crate::exit::Exit;
use crate::store::StoreArgs;
use crate::values::ttl;

const ABOUT: &str = "\
Counts from now: what was left does not add to it. A lease that has ended is never taken again.
  leasehold renew --ttl 20m

Exit codes: 0 renewed; 79 the lease had ended; 64 wrong use, or no lock or token; 69 the store does not
answer; 77 it refuses user, password or permission; 78 no store";

/// Make a lease last for --ttl from now on, by its token
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

/// Does it.
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
                "Not known to be renewed: count on what was left before, and try again.",
            )),
        }
    })
}

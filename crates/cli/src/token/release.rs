//! `leasehold release`: the end of a lease, by its token. Must never call a lease released that had ended before.

use clap::Args;
use leasehold::Error;

use super::lease::{LeaseArgs, begin, gone, unknown};
use crate::exit::Exit;
use crate::store::StoreArgs;

const ABOUT: &str = "\
Frees the lock at once for the first in line:
  leasehold release              at the end of the work
  leasehold release --if-held    in a clean-up step

Exit codes: 0 released; 79 the lease had ended; 64 wrong use, or no lock or token; 69 the store does not
answer: the TTL ends it at the latest; 77 it refuses user, password or permission; 78 no store";

/// Give a lock back, by its token
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Release {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// A lease that is not held any more is no error (exit 0, silent): for a clean-up step that may run twice. By default,
    /// exit 79, since the work may have been unprotected
    #[arg(long)]
    if_held: bool,
}

/// Does it.
pub(crate) fn release(args: &Release) -> Exit {
    let (named, target) = match begin(&args.store, &args.lease) {
        Ok(begun) => begun,
        Err(exit) => return exit,
    };
    named.with(target, async |detached| match detached.release().await {
        Ok(()) => Ok(Exit::quiet(0)),
        Err(Error::Lost(_)) if args.if_held => Ok(Exit::quiet(0)),
        Err(Error::Lost(lost)) => Err(gone(&lost)),
        Err(error) => Err(unknown(
            error,
            "Not known to be released: try again. At the latest, it ends by its TTL; until then others wait.",
        )),
    })
}

//! `leasehold release`: releases a lease by its token. A lease that had already ended is reported as lost.

use clap::Args;
use leasehold::Error;

use super::lease::{LeaseArgs, begin, gone, unknown};
use crate::exit::Exit;
use crate::store::StoreArgs;

const ABOUT: &str = "\
Frees the lock at once for the first in line:
  leasehold release              at the end of the work
  leasehold release --if-held    in a clean-up step

Exit codes: 0 released; 79 the lease had ended; 64 wrong usage, or no lock or token; 69 the store does
not answer: the TTL ends the lease at the latest; 77 it refuses user, password or permission; 78 no store";

/// Release a lock, by its token
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
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

/// Runs the verb.
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
            "The release is not confirmed: try again. At the latest the TTL ends the lease; until then other clients wait.",
        )),
    })
}

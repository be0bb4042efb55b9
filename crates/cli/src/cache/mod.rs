//! `leasehold cache`: caches the output of a slow command for all hosts.

mod get_or_refresh;
mod load;
mod stored;

use clap::{Args, Subcommand};

use self::get_or_refresh::{GetOrRefresh, get_or_refresh};
use self::stored::{Get, Invalidate, get, invalidate};
use crate::exit::Exit;
use crate::store::{ON_THIS_HOST, WHERE};

const ABOUT: &str = "\
KEY is a name for the output of CMD. Put everything that the output depends on into it (report:eu:2026).

  leasehold cache get-or-refresh report --fresh 1m --stale 1h -- ./report.sh
  leasehold cache invalidate report      the data has changed: the next reader refreshes the value
  leasehold cache get report             the stored value, whatever its age";

/// Cache the output of a slow command for all hosts
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Cache {
    #[command(subcommand)]
    verb: CacheVerb,
}

#[derive(Debug, Subcommand)]
enum CacheVerb {
    GetOrRefresh(GetOrRefresh),
    Get(Get),
    Invalidate(Invalidate),
}

/// Runs the verb.
pub(crate) fn cache(args: &Cache) -> Result<Exit, Exit> {
    let (done, here) = match &args.verb {
        CacheVerb::GetOrRefresh(args) => (
            get_or_refresh(args),
            "leasehold cache get-or-refresh --url local: KEY -- CMD",
        ),
        CacheVerb::Get(args) => (get(args), "leasehold cache get --url local: KEY"),
        CacheVerb::Invalidate(args) => (
            invalidate(args),
            "leasehold cache invalidate --url local: KEY",
        ),
    };
    done.map_err(|exit| {
        exit.reworded(WHERE, "where are the values kept?")
            .reworded(ON_THIS_HOST, here)
    })
}

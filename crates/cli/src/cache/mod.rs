//! `leasehold cache`: caches the output of a slow command for all hosts. `get` and `invalidate` are here, with the errors about
//! values, which do not mention locks.

mod get_or_refresh;
mod load;

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::Invalid;
use leasehold_cache::{Cached, Error, Origin};
use leasehold_core::LockName;
use serde::Serialize;

use self::get_or_refresh::{GetOrRefresh, get_or_refresh};
use crate::exit::{CONFIG, Exit, LOCK_UNKNOWN, NO_VALUE, SOFTWARE, exit};
use crate::messages::{quoted, span};
use crate::output;
use crate::session::with_client_until_signal;
use crate::store::{ON_THIS_HOST, StoreArgs, WHERE};
use crate::view::millis;

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
    let (done, verb, command) = match &args.verb {
        CacheVerb::GetOrRefresh(args) => (get_or_refresh(args), "get-or-refresh", " -- CMD"),
        CacheVerb::Get(args) => (get(args), "get", ""),
        CacheVerb::Invalidate(args) => (invalidate(args), "invalidate", ""),
    };
    let here = format!("leasehold cache {verb} --url local: KEY{command}");
    done.map_err(|exit| {
        exit.reworded(WHERE, "where are the values kept?")
            .reworded(ON_THIS_HOST, &here)
    })
}

const GET_HELP: &str = "\
Prints the stored bytes, fresh or stale, and runs nothing. A value that a program stored with the library is
printed in its format, JSON by default. A key that is not a cache entry counts as no value.

Exit codes: 0 printed; 66 there is no value; 64 wrong usage, or an invalid key; 69 the store does not answer;
77 it refuses user, password or permission; 78 no store was given, or the URL is not a store";

/// Print the stored value
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
struct Get {
    #[command(flatten)]
    store: StoreArgs,

    /// Treat a stale value as missing
    #[arg(long)]
    must_be_fresh: bool,

    /// Print one JSON document about the value (leasehold.cache-get/1), and not the value
    #[arg(long)]
    json: bool,

    /// The name of the value
    key: String,
}

/// The document of `--json`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.cache-get/1")]
struct CachedValue<'a> {
    store: &'a str,
    key: &'a str,
    /// `fresh`, `stale` or `none`.
    state: &'static str,
    age_ms: Option<u64>,
    bytes: Option<usize>,
}

/// Runs `leasehold cache get`. It never loads a value.
fn get(args: &Get) -> Result<Exit, Exit> {
    let done = with_client_until_signal(&args.store.target()?, async |client| {
        let cache = leasehold_cache::Cache::new(client).any_format();
        let found = cache.get::<Vec<u8>>(&args.key).await.map_err(refused)?;
        if args.json {
            output::print_json_answer(&about(client.store(), &args.key, found.as_ref()))?;
        }
        match found {
            Some(got) if args.must_be_fresh && got.origin() == Origin::Stale => {
                Err(nothing(&args.key, Some(got.age())))
            }
            Some(_) if args.json => Ok(Exit::quiet(0)),
            Some(got) => output::print_on_thread(got.into_inner()).await,
            None => Err(nothing(&args.key, None)),
        }
    });
    done.map_err(|exit| for_cache(exit).without_command())
}

fn about<'a>(store: &'a str, key: &'a str, found: Option<&Cached<Vec<u8>>>) -> CachedValue<'a> {
    CachedValue {
        store,
        key,
        state: match found.map(Cached::origin) {
            None => "none",
            Some(Origin::Stale) => "stale",
            Some(_) => "fresh",
        },
        age_ms: found.map(|got| millis(got.age())),
        bytes: found.map(|got| got.len()),
    }
}

fn nothing(key: &str, stale: Option<Duration>) -> Exit {
    let what = match stale {
        None => "there is no value".to_owned(),
        Some(age) => format!("the value is stale ({} old)", span(age)),
    };
    exit!(NO_VALUE, "{}: {what} (exit {NO_VALUE})", quoted(key))
}

const INVALIDATE_HELP: &str = "\
From now on the values are stale on all hosts, and so are values that are being loaded. The next reader
refreshes them. A missing value is not an error. Several keys are all validated first, then invalidated one
after the other; a failure stops at its key, and the message names it.

Exit codes: 0 done; 69 the store does not answer: the values may still be fresh, run it again; 64 wrong usage,
or an invalid key; 77 the store refuses user, password or permission; 78 no store, or a key is not a cache entry";

/// The message if the store did not confirm.
const UNCONFIRMED: &str = "The stored values may still count as fresh. Run it again.";

/// Mark stored values as stale
#[derive(Debug, Args)]
#[command(after_help = INVALIDATE_HELP)]
struct Invalidate {
    #[command(flatten)]
    store: StoreArgs,

    /// Also delete the values: readers wait for new ones
    #[arg(long)]
    remove: bool,

    /// The names of the values
    #[arg(required = true)]
    key: Vec<String>,
}

/// Runs `leasehold cache invalidate`. Success means that the store confirmed it.
fn invalidate(args: &Invalidate) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    for key in &args.key {
        LockName::new(key).map_err(|invalid| Invalid {
            what: "cache key",
            ..invalid
        })?;
    }
    let done = with_client_until_signal(&target, async |client| {
        let cache = leasehold_cache::Cache::new(client);
        for (at, key) in args.key.iter().enumerate() {
            let done = if args.remove {
                cache.remove(key).await
            } else {
                cache.invalidate(key).await
            };
            done.map_err(|error| failed(&args.key, at, error))?;
        }
        Ok(Exit::quiet(0))
    });
    done.map_err(|exit| for_cache(exit.reworded(LOCK_UNKNOWN, UNCONFIRMED)).without_command())
}

/// The exit for a failure at the key with index `at`. With several keys it names the key, and says which ones
/// are done.
fn failed(keys: &[String], at: usize, error: Error) -> Exit {
    let exit: Exit = match error {
        Error::Store(store) => leasehold::Error::Store(store).into(),
        other => refused(other),
    };
    match keys.get(at) {
        Some(key) if keys.len() > 1 => exit.adding(&format!(
            "at {}, {} of {} keys: those before it are done, those after it are not",
            quoted(key),
            at + 1,
            keys.len()
        )),
        _ => exit,
    }
}

/// The exit for an error of the library. Busy and failed loads get a longer message where they occur.
fn refused(error: Error) -> Exit {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Store(store) => for_cache(leasehold::Error::Store(store).into()),
        Error::Value { .. } => exit!(
            CONFIG,
            "{error} (exit {CONFIG})\n    next    choose another key, or a separate --namespace for cache values"
        ),
        other => exit!(SOFTWARE, "{other} (exit {SOFTWARE})"),
    }
}

/// Rewords a message that was written for locks.
fn for_cache(exit: Exit) -> Exit {
    exit.reworded(LOCK_UNKNOWN, "The state of the value is not known.")
}

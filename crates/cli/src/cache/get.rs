//! `leasehold cache get`: prints the stored value, and never loads one.

use std::time::Duration;

use clap::Args;
use leasehold_cache::{Cache, Cached, Origin};
use serde::Serialize;

use super::errors::{for_cache, refused};
use crate::exit::{Exit, NO_VALUE};
use crate::messages::{quoted, span};
use crate::output;
use crate::session::with_client;
use crate::store::StoreArgs;
use crate::view::millis;

const ABOUT: &str = "\
Prints the stored bytes, fresh or stale, and runs nothing. A value that a program stored with the library is
printed in its format, JSON by default. A key that is not a cache entry counts as no value.

Exit codes: 0 printed; 66 there is no value; 64 wrong usage, or an invalid key; 69 the store does not answer;
77 it refuses user, password or permission; 78 no store was given, or the URL is not a store";

/// Print the stored value
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Get {
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
struct CachedValue<'a> {
    schema: &'static str,
    store: &'a str,
    key: &'a str,
    /// `fresh`, `stale` or `none`.
    state: &'static str,
    age_ms: Option<u64>,
    bytes: Option<usize>,
}

/// Runs the verb.
pub(crate) fn get(args: &Get) -> Exit {
    let target = match args.store.target() {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let exit = with_client(target, async |client, signals| {
        let cache = Cache::new(client).any_format();
        let found = tokio::select! {
            biased;
            signal = signals.next_ending() => return Err(Exit::by(signal)),
            found = cache.get::<Vec<u8>>(&args.key) => found.map_err(refused)?,
        };
        if args.json {
            output::print_json_answer(&about(client.store(), &args.key, found.as_ref()))?;
        }
        match found {
            Some(got) if args.must_be_fresh && got.origin() == Origin::Stale => {
                Err(nothing(&args.key, Some(got.age())))
            }
            Some(_) if args.json => Ok(Exit::quiet(0)),
            Some(got) => {
                tokio::select! {
                    biased;
                    signal = signals.next_ending() => Err(Exit::by(signal)),
                    printed = output::print_on_thread(got.into_inner()) => printed.map(|()| Exit::quiet(0)),
                }
            }
            None => Err(nothing(&args.key, None)),
        }
    });
    for_cache(exit).without_command()
}

fn about<'a>(store: &'a str, key: &'a str, found: Option<&Cached<Vec<u8>>>) -> CachedValue<'a> {
    CachedValue {
        schema: "leasehold.cache-get/1",
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
    Exit::saying(
        NO_VALUE,
        format!("{}: {what} (exit {NO_VALUE})", quoted(key)),
    )
}

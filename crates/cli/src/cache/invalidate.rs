//! `leasehold cache invalidate`: marks stored values as stale. Success means that the store confirmed it.

use clap::Args;
use leasehold::Invalid;
use leasehold_cache::{Cache, Error};
use leasehold_core::LockName;

use super::errors::{for_cache, refused};
use crate::exit::{Exit, LOCK_UNKNOWN};
use crate::messages::quoted;
use crate::session::with_client;
use crate::store::StoreArgs;

const ABOUT: &str = "\
From now on the values are stale on all hosts, and so are values that are being loaded. The next reader
refreshes them. A missing value is not an error. Several keys are all validated first, then invalidated one
after the other; a failure stops at its key, and the message names it.

Exit codes: 0 done; 69 the store does not answer: the values may still be fresh, run it again; 64 wrong usage,
or an invalid key; 77 the store refuses user, password or permission; 78 no store, or a key is not a cache entry";

/// The message if the store did not confirm.
const UNCONFIRMED: &str = "The stored values may still count as fresh. Run it again.";

/// Mark stored values as stale
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Invalidate {
    #[command(flatten)]
    store: StoreArgs,

    /// Also delete the values: readers wait for new ones
    #[arg(long)]
    remove: bool,

    /// The names of the values
    #[arg(required = true)]
    key: Vec<String>,
}

/// Runs the verb.
pub(crate) fn invalidate(args: &Invalidate) -> Exit {
    let target = args.store.target();
    let target = match target.and_then(|target| check(&args.key).map(|()| target)) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let exit = with_client(target, async |client, signals| {
        let cache = Cache::new(client);
        let all = async {
            for (at, key) in args.key.iter().enumerate() {
                let done = if args.remove {
                    cache.remove(key).await
                } else {
                    cache.invalidate(key).await
                };
                done.map_err(|error| failed(&args.key, at, error))?;
            }
            Ok(Exit::quiet(0))
        };
        tokio::select! {
            biased;
            signal = signals.next_ending() => Err(Exit::by(signal)),
            done = all => done,
        }
    });
    for_cache(exit.reworded(LOCK_UNKNOWN, UNCONFIRMED)).without_command()
}

/// Refuses all keys if one is invalid.
fn check(keys: &[String]) -> Result<(), Exit> {
    for key in keys {
        LockName::new(key).map_err(|invalid| Invalid {
            what: "cache key",
            ..invalid
        })?;
    }
    Ok(())
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

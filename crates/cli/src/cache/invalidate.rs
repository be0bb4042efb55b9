//! `leasehold cache invalidate`: what is stored is no longer true. Must never say so of what the store did not confirm.

use clap::Args;
use leasehold::Invalid;
use leasehold::cache::Error;
use leasehold_core::LockName;

use super::errors::{of_value, refused};
use crate::exit::{Exit, LOCK_UNKNOWN};
use crate::messages::quoted;
use crate::session::with_client;
use crate::store::StoreArgs;

const ABOUT: &str = "\
From here on the values are stale, and so is what loads that are under way will bring: no reader on any host
takes them for fresh. The next reader refreshes them. To invalidate what is not stored is no error. Of several
keys, all are checked first; then one is done after the other, up to the one that fails, which is named.

Exit codes: 0 done; 69 the store does not answer: it may not have happened, do it again; 64 wrong use, or a
bad key; 77 the store refuses user, password or permission; 78 no store, or something else is stored there";

/// What is used where the store did not confirm it.
const UNCONFIRMED: &str =
    "It may not have happened: what is stored may still be taken for fresh. Do it again.";

/// Say that what is stored is no longer true
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Invalidate {
    #[command(flatten)]
    store: StoreArgs,

    /// Delete the values as well: readers wait for new ones
    #[arg(long)]
    remove: bool,

    /// The names of the values
    #[arg(required = true)]
    key: Vec<String>,
}

/// Does it.
pub(crate) fn invalidate(args: &Invalidate) -> Exit {
    let target = args.store.target();
    let target = match target.and_then(|target| check(&args.key).map(|()| target)) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let exit = with_client(target, async |client, signals| {
        let cache = client.cache();
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
    of_value(exit.reworded(LOCK_UNKNOWN, UNCONFIRMED)).without_command()
}

/// Refuses all of them for one that can be no key.
fn check(keys: &[String]) -> Result<(), Exit> {
    for key in keys {
        LockName::new(key).map_err(|invalid| Invalid {
            what: "cache key",
            ..invalid
        })?;
    }
    Ok(())
}

/// Why the key `at` this place of them was not invalidated; if there are others, which one it is, and what became of them.
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

//! A lease identified by its token: its arguments, and the messages about its end. A token is never shown.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Detached, Error, LeaseStatus, LossCause, Lost};
use leasehold_core::LockName;

use crate::exit::{Exit, LOST, SOFTWARE, USAGE, exit};
use crate::messages::quoted;
use crate::session::with_client_until_signal;
use crate::store::StoreArgs;

/// An upper limit for the length of a token.
const LONGEST: u64 = 4096;

/// The arguments that identify a lease. Their defaults come from the environment that `leasehold run` and
/// `leasehold acquire --env` provide.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// The lock; by default, the one of the environment
    #[arg(value_name = "LOCK", env = "LEASEHOLD_LOCK", hide_env_values = true)]
    lock: Option<String>,

    /// The token that `leasehold acquire` printed, including the part after #; - reads it from stdin. Other
    /// users can see the command line of a process: prefer the environment or stdin
    #[arg(
        long,
        value_name = "TOKEN",
        env = "LEASEHOLD_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
}

/// A lock and a token, before the connection is made.
struct NamedLease {
    lock: String,
    token: String,
}

impl LeaseArgs {
    fn named(&self) -> Result<NamedLease, Exit> {
        // An empty variable counts as unset.
        let lock = self.lock.clone().filter(|lock| !lock.is_empty());
        let lock = lock.ok_or_else(|| missing("lock", "LEASEHOLD_LOCK"))?;
        LockName::new(&lock)?;
        let token = self.token.clone().filter(|token| !token.is_empty());
        let token = match token.ok_or_else(|| missing("token", "LEASEHOLD_TOKEN"))? {
            dash if dash == "-" => from_stdin()?,
            token => token,
        };
        Ok(NamedLease { lock, token })
    }
}

/// Runs `work` with the lock and the lease of the arguments.
pub(super) fn with_lease(
    store: &StoreArgs,
    lease: &LeaseArgs,
    work: impl AsyncFnOnce(&str, Detached) -> Result<Exit, Exit>,
) -> Exit {
    let begun = lease.named().and_then(|named| Ok((named, store.target()?)));
    let (NamedLease { lock, token }, target) = match begun {
        Ok(begun) => begun,
        Err(exit) => return exit,
    };
    with_client_until_signal(target, async |client: &Client| {
        let detached = client.detached(&lock, &token)?;
        work(&lock, detached).await
    })
}

fn missing(what: &str, variable: &str) -> Exit {
    exit!(
        USAGE,
        "no {what} given, and {variable} is not set (exit {USAGE})\n    next    run this under `leasehold run`, or after: set -a; eval \"$(leasehold acquire --ttl 20m --env LOCK)\"; set +a\n            in a shell, a variable that is set counts only if it is exported"
    )
}

fn from_stdin() -> Result<String, Exit> {
    let mut line = String::new();
    let read = io::stdin().lock().take(LONGEST).read_line(&mut line);
    read.map_err(|error| {
        exit!(
            USAGE,
            "no token can be read from stdin: {error} (exit {USAGE})"
        )
    })?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The time for which the lease is certain.
pub(super) fn left(status: LeaseStatus) -> Duration {
    status.valid_until.since(Clock::system().now())
}

/// The exit for a lease that is no longer held.
pub(super) fn gone(lost: &Lost) -> Exit {
    exit!(
        LOST,
        "you do not hold {} any more: {} (exit {LOST})\n    It has expired, was released, broken or undone by a failover, or the token is for another lock.\n    Work done since then may have been unprotected; stop it.",
        quoted(&lost.name),
        cause(lost)
    )
}

fn cause(lost: &Lost) -> String {
    match &lost.cause {
        LossCause::NotHeld(None) => "the lock is free".into(),
        other => other.to_string(),
    }
}

/// The exit for an unknown outcome. `what` explains the consequence for the user.
pub(super) fn unknown(error: Error, what: &str) -> Exit {
    match error {
        Error::Store(store) => {
            let code = Exit::from(Error::Store(store.clone())).code();
            exit!(code, "{store} (exit {code})\n    {what}")
        }
        other => other.into(),
    }
}

/// The exit for a failed write to stdout.
pub(super) fn unprinted(error: &io::Error) -> Exit {
    exit!(
        SOFTWARE,
        "cannot write to stdout: {error} (exit {SOFTWARE})"
    )
}

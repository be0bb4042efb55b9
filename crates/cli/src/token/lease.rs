//! A lease that is known by its token: which one is meant, and how its end is told. Must never quote a token.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Detached, Error, LeaseStatus, LossCause, Lost};
use leasehold_core::LockName;

use crate::exit::{Exit, LOST, SOFTWARE, USAGE};
use crate::messages::quoted;
use crate::session::with_client;
use crate::signals::Signals;
use crate::store::{StoreArgs, Target};

/// The longest token, and then some.
const LONGEST: u64 = 4096;

/// Which lease. What `leasehold run` gives its command and what `leasehold acquire --env` prints is found by itself.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// The lock; by default, that of the environment
    #[arg(value_name = "LOCK", env = "LEASEHOLD_LOCK", hide_env_values = true)]
    lock: Option<String>,

    /// The token that `leasehold acquire` printed, with the fence behind its #, or - to read it from stdin. Other users see the command line of a process:
    /// prefer the environment or stdin
    #[arg(
        long,
        value_name = "TOKEN",
        env = "LEASEHOLD_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
}

/// A lease that was named in full, before there is a connection.
pub(super) struct Named {
    pub(super) lock: String,
    token: String,
}

impl LeaseArgs {
    fn named(&self) -> Result<Named, Exit> {
        // A variable that is set to nothing is as good as none.
        let lock = self.lock.clone().filter(|lock| !lock.is_empty());
        let lock = lock.ok_or_else(|| missing("lock", "LEASEHOLD_LOCK"))?;
        LockName::new(&lock)?;
        let token = self.token.clone().filter(|token| !token.is_empty());
        let token = match token.ok_or_else(|| missing("token", "LEASEHOLD_TOKEN"))? {
            dash if dash == "-" => from_stdin()?,
            token => token,
        };
        Ok(Named { lock, token })
    }
}

impl Named {
    /// Does `work` with this lease.
    pub(super) fn with(
        self,
        target: Target,
        work: impl AsyncFnOnce(Detached) -> Result<Exit, Exit>,
    ) -> Exit {
        with_client(target, async |client: &Client, signals: &mut Signals| {
            let detached = client.detached(&self.lock, &self.token)?;
            tokio::select! {
                biased;
                signal = signals.next_ending() => Err(Exit::by(signal)),
                done = work(detached) => done,
            }
        })
    }
}

/// The lease that `args` name, and where it is.
pub(super) fn begin(store: &StoreArgs, lease: &LeaseArgs) -> Result<(Named, Target), Exit> {
    let named = lease.named()?;
    Ok((named, store.target()?))
}

fn missing(what: &str, variable: &str) -> Exit {
    Exit::saying(
        USAGE,
        format!(
            "no {what} given, and {variable} is not set (exit {USAGE})\n    next    run this under `leasehold run`, or after: set -a; eval \"$(leasehold acquire --ttl 20m --env LOCK)\"; set +a\n            in a shell, a variable that is set counts only if it is exported"
        ),
    )
}

fn from_stdin() -> Result<String, Exit> {
    let mut line = String::new();
    let read = io::stdin().lock().take(LONGEST).read_line(&mut line);
    read.map_err(|error| {
        Exit::saying(
            USAGE,
            format!("no token can be read from stdin: {error} (exit {USAGE})"),
        )
    })?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// How long it may still be relied on.
pub(super) fn left(status: LeaseStatus) -> Duration {
    status.valid_until.since(Clock::system().now())
}

/// The lease is not held any more.
pub(super) fn gone(lost: &Lost) -> Exit {
    Exit::saying(
        LOST,
        format!(
            "you do not hold {} any more: {} (exit {LOST})\n    It has expired, was released, broken or undone by a failover, or the token is for another lock.\n    Work done since may have been unprotected; do not go on with it.",
            quoted(&lost.name),
            cause(lost)
        ),
    )
}

fn cause(lost: &Lost) -> String {
    match &lost.cause {
        LossCause::NotHeld(None) => "nobody does".into(),
        other => other.to_string(),
    }
}

/// There is no verdict. `what` says what that means for the one who asked.
pub(super) fn unknown(error: Error, what: &str) -> Exit {
    match error {
        Error::Store(store) => {
            let code = Exit::from(Error::Store(store.clone())).code();
            Exit::saying(code, format!("{store} (exit {code})\n    {what}"))
        }
        other => other.into(),
    }
}

/// What a caller that cannot be answered gets.
pub(super) fn unprinted(error: &io::Error) -> Exit {
    Exit::saying(
        SOFTWARE,
        format!("cannot write to stdout: {error} (exit {SOFTWARE})"),
    )
}

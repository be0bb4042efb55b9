//! A lock of the timestamp protocol (`--protocol timestamp`) for a command.

use std::env;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::timestamp::Unit;
use leasehold::{Client, Error, TimestampHold, TimestampLock};
use tokio::sync::watch;

use crate::acquire_ui::{WaitArgs, interrupted, is_in_chain};
use crate::exit::{BUSY, Exit, TIMEOUT, USAGE, exit};
use crate::held::LockGuard;
use crate::messages::{quoted, say, span};
use crate::terminal::{Signals, Terminal};

/// The section of these options in `--help`.
const SECTION: &str = "Sharing keys with other programs";

/// The options of the timestamp protocol.
#[derive(Debug, Default, Args)]
pub(crate) struct TimestampArgs {
    /// The lock protocol: mutex, or timestamp, to share the key with clients that do SETNX, GET, GETSET and DEL
    #[arg(long, value_name = "PROTOCOL", value_enum, default_value_t, help_heading = SECTION, hide_short_help = true)]
    protocol: Protocol,

    /// The time unit of those clients: s or ms [default: s]
    #[arg(long, value_name = "UNIT", value_parser = ["s", "ms"], help_heading = SECTION, hide_short_help = true)]
    timestamp_unit: Option<String>,

    /// Send single commands, as those clients do, for a server that refuses scripts: hardly safer than those
    /// clients
    #[arg(long, help_heading = SECTION, hide_short_help = true)]
    timestamp_without_scripts: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Protocol {
    #[default]
    Mutex,
    Timestamp,
}

impl TimestampArgs {
    /// True if the protocol is `timestamp`; an error if the options contradict each other.
    pub(crate) fn is_chosen(&self, wait: &WaitArgs) -> Result<bool, String> {
        let refuse = |what: &str, why: &str| Err(format!("{what} cannot be used: {why}"));
        if self.protocol == Protocol::Mutex {
            let why = "it requires --protocol timestamp";
            return match (&self.timestamp_unit, self.timestamp_without_scripts) {
                (Some(_), _) => refuse("--timestamp-unit", why),
                (None, true) => refuse("--timestamp-without-scripts", why),
                (None, false) => Ok(false),
            };
        }
        if wait.max_waiters.is_some() {
            let why = "with --protocol timestamp there is no queue";
            return refuse("--max-waiters", why);
        }
        // A note from the environment may be for other commands.
        if wait.note.is_some() && env::var_os("LEASEHOLD_NOTE").is_none() {
            let why = "with --protocol timestamp no other client would see it";
            return refuse("--note", why);
        }
        Ok(true)
    }

    /// The timestamp lock of this name.
    pub(crate) fn lock(&self, client: &Client, name: &str, ttl: Duration) -> TimestampLock {
        let unit = match self.timestamp_unit.as_deref() {
            Some("ms") => Unit::Millis,
            _ => Unit::Seconds,
        };
        let lock = client.timestamp_lock(name).ttl(ttl).unit(unit);
        if self.timestamp_without_scripts {
            lock.without_scripts()
        } else {
            lock
        }
    }
}

/// The entry in [`CHAIN`] by which nested runs recognize the lock. A deadline does not identify its owner, so
/// the entry is made of the store and the key. It contains no spaces.
pub(crate) fn timestamp_link(store: &str, naming: &[(&'static str, String)], name: &str) -> String {
    let naming = naming.iter().map(|(_, value)| value.as_str());
    // The default template.
    let naming = naming.filter(|value| *value != "{}");
    let parts: Vec<&str> = [store].into_iter().chain(naming).chain([name]).collect();
    let bytes = parts.join("\n").into_bytes();
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    "timestamp:".to_owned() + &digits.collect::<String>()
}

/// Waits for the lock of this name, with its entry in [`CHAIN`].
pub(crate) async fn wait_for_timestamp(
    lock: TimestampLock,
    name: &str,
    link: String,
    how: &WaitArgs,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<LockGuard, Exit> {
    let limit = how.limit()?;
    let (busy, mut is_new) = (watch::Sender::new(()), true);
    let mut found_busy = busy.subscribe();
    let lock = lock.on_wait(move |_| busy.send_replace(()));
    let asking = async {
        match limit {
            _ if how.once => lock.try_acquire().await,
            Some(limit) => lock.acquire_within(limit).await.map(Some),
            None => lock.acquire().await.map(Some),
        }
    };
    tokio::pin!(asking);
    let answer: Result<Option<TimestampHold>, Error> = loop {
        tokio::select! {
            // Signals have priority: a lock that arrives together with one must not be used.
            biased;
            signal = signals.next_ending() => return Err(interrupted(signal, terminal)),
            answer = &mut asking => break answer,
            Ok(()) = found_busy.changed(), if is_new => {
                is_new = false;
                if is_in_chain(&link) {
                    return Err(nested(name));
                }
                if !how.quiet {
                    say(&format!(
                        "{} is busy; polling it (timestamp protocol: there is no queue)",
                        quoted(name)
                    ));
                }
            }
        }
    };
    let refused = |code, said: String| {
        exit!(code, "{} {said} (exit {code})", quoted(name)).quiet_if(how.quiet)
    };
    let hold = match answer {
        Ok(Some(hold)) => hold,
        Ok(None) if is_in_chain(&link) => return Err(nested(name)),
        Ok(None) => return Err(refused(BUSY, "is busy".into())),
        Err(Error::Timeout(timeout)) => {
            let after = span(timeout.waited);
            return Err(refused(TIMEOUT, format!("is still busy after {after}")));
        }
        Err(error) => return Err(error.into()),
    };
    // Dropping the hold releases the lock: after a signal the command must not start.
    match signals.arrived().await {
        Some(signal) => Err(interrupted(signal, terminal)),
        None => Ok(LockGuard::Timestamp { hold, link }),
    }
}

fn nested(name: &str) -> Exit {
    exit!(
        USAGE,
        "{} is held by an outer `leasehold run`: you already hold this lock, so waiting for it would never end (exit {USAGE})",
        quoted(name)
    )
}

//! `--protocol timestamp`: a lock shared with clients that store a deadline in the key. Weaker than a mutex.

use std::env;
use std::fmt::{self, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::timestamp::Unit;
use leasehold::{Client, Clock, Error, TimestampHold, TimestampLock};
use tokio::sync::watch;

use super::lock_guard::LockGuard;
use crate::acquire_ui::{CHAIN, WaitArgs, interrupted};
use crate::exit::{BUSY, Exit, TIMEOUT, USAGE, exit};
use crate::help;
use crate::messages::{quoted, say, span};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// The options of the timestamp protocol.
#[derive(Debug, Args)]
pub(crate) struct TimestampArgs {
    /// The lock protocol: mutex, or timestamp, to share the key with clients that do SETNX, GET, GETSET and DEL
    #[arg(
        long,
        value_name = "PROTOCOL",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = help::SHARING
    )]
    protocol: Protocol,

    /// The time unit of those clients: s or ms [default: s]
    #[arg(long, value_name = "UNIT", value_enum, hide_possible_values = true, help_heading = help::SHARING)]
    timestamp_unit: Option<UnitName>,

    /// Send single commands, as those clients do, for a server that refuses scripts: hardly safer than those
    /// clients
    #[arg(long, help_heading = help::SHARING)]
    timestamp_without_scripts: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Protocol {
    #[default]
    Mutex,
    Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnitName {
    S,
    Ms,
}

/// The settings of a timestamp lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampSettings {
    unit: Unit,
    without_scripts: bool,
}

impl TimestampArgs {
    /// The settings if the protocol is `timestamp`; an error if the options contradict each other.
    pub(crate) fn read(&self, wait: &WaitArgs) -> Result<Option<TimestampSettings>, String> {
        let refuse = |what: &str, why: &str| Err(format!("{what} cannot be used: {why}"));
        if self.protocol == Protocol::Mutex {
            let why = "it requires --protocol timestamp";
            return match (self.timestamp_unit, self.timestamp_without_scripts) {
                (Some(_), _) => refuse("--timestamp-unit", why),
                (None, true) => refuse("--timestamp-without-scripts", why),
                (None, false) => Ok(None),
            };
        }
        if wait.max_waiters.is_some() {
            return refuse(
                "--max-waiters",
                "with --protocol timestamp there is no queue",
            );
        }
        // A note from the environment may be for other commands.
        if wait.note.is_some() && env::var_os("LEASEHOLD_NOTE").is_none() {
            return refuse(
                "--note",
                "with --protocol timestamp no other client would see it",
            );
        }
        Ok(Some(TimestampSettings {
            unit: match self.timestamp_unit {
                None | Some(UnitName::S) => Unit::Seconds,
                Some(UnitName::Ms) => Unit::Millis,
            },
            without_scripts: self.timestamp_without_scripts,
        }))
    }
}

impl TimestampSettings {
    /// The timestamp lock of this name.
    pub(crate) fn of(self, client: &Client, name: &str, ttl: Duration) -> TimestampLock {
        let lock = client.timestamp_lock(name).ttl(ttl).unit(self.unit);
        if self.without_scripts {
            lock.without_scripts()
        } else {
            lock
        }
    }
}

/// A request for a timestamp lock.
pub(crate) struct TimestampRequest<'a> {
    pub(crate) lock: TimestampLock,
    pub(crate) name: &'a str,
    /// See [`link`].
    pub(crate) link: String,
}

/// The entry in [`CHAIN`] by which nested runs recognize the lock. A deadline does not identify its owner, so
/// the entry is made of the store and the key. It contains no spaces.
pub(crate) fn link(store: &str, naming: &[(&'static str, String)], name: &str) -> String {
    let naming = naming.iter().map(|(_, value)| value.as_str());
    // The default template.
    let naming = naming.filter(|value| *value != "{}");
    let parts: Vec<&str> = [store].into_iter().chain(naming).chain([name]).collect();
    let bytes = parts.join("\n").into_bytes();
    bytes
        .iter()
        .fold(String::from("timestamp:"), |mut link, byte| {
            // Writing to a string cannot fail.
            let _written: fmt::Result = write!(link, "{byte:02x}");
            link
        })
}

/// Waits for the lock. Returns it with the time of the wait.
pub(crate) async fn wait(
    sought: TimestampRequest<'_>,
    how: &WaitArgs,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<(LockGuard, Duration), Exit> {
    let (limit, clock) = (how.limit()?, Clock::system());
    let begun = clock.now();
    let TimestampRequest { lock, name, link } = sought;
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
                if has_link(&link) {
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
    let waited = clock.now().since(begun);
    let refused = |code, said: String| {
        if how.quiet {
            Exit::quiet(code)
        } else {
            exit!(code, "{} {said} (exit {code})", quoted(name))
        }
    };
    let hold = match answer {
        Ok(Some(hold)) => hold,
        Ok(None) if has_link(&link) => return Err(nested(name)),
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
        None => Ok((LockGuard::Timestamp { hold, link }, waited)),
    }
}

/// True if an outer run holds the lock.
fn has_link(link: &str) -> bool {
    env::var(CHAIN).is_ok_and(|chain| chain.split(' ').any(|other| other == link))
}

fn nested(name: &str) -> Exit {
    exit!(
        USAGE,
        "{} is held by an outer `leasehold run`: you already hold this lock, so waiting for it would never end (exit {USAGE})",
        quoted(name)
    )
}

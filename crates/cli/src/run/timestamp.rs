//! `--protocol timestamp`: a lock shared with clients that keep its deadline in the key. Must never pass for a mutex.

use std::env;
use std::fmt::{self, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::timestamp::Unit;
use leasehold::{Client, Clock, Error, TimestampHold, TimestampLock};
use tokio::sync::watch;

use super::lock_guard::LockGuard;
use crate::acquire_ui::{CHAIN, WaitArgs, interrupted};
use crate::exit::{BUSY, Exit, TIMEOUT, USAGE};
use crate::messages::{quoted, say, span};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// How the lock is kept.
#[derive(Debug, Args)]
pub(crate) struct TimestampArgs {
    /// How the lock is kept: mutex, or timestamp, to share the key with clients that do SETNX, GET, GETSET and DEL
    #[arg(
        long,
        value_name = "PROTOCOL",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    protocol: Protocol,

    /// What those clients count time in: s or ms [default: s]
    #[arg(long, value_name = "UNIT", value_enum, hide_possible_values = true)]
    timestamp_unit: Option<UnitName>,

    /// Do as those clients do, one command after the other, on a server that refuses scripts: hardly safer than those clients
    #[arg(long)]
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

/// The settings of such a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampSettings {
    unit: Unit,
    without_scripts: bool,
}

impl TimestampArgs {
    /// The settings, if the lock is to be such a one; or what makes no sense.
    pub(crate) fn read(&self, wait: &WaitArgs) -> Result<Option<TimestampSettings>, String> {
        let refuse = |what: &str, why: &str| Err(format!("{what} makes no sense: {why}"));
        if self.protocol == Protocol::Mutex {
            let why = "it is for --protocol timestamp";
            return match (self.timestamp_unit, self.timestamp_without_scripts) {
                (Some(_), _) => refuse("--timestamp-unit", why),
                (None, true) => refuse("--timestamp-without-scripts", why),
                (None, false) => Ok(None),
            };
        }
        if wait.max_waiters.is_some() {
            return refuse(
                "--max-waiters",
                "with --protocol timestamp there is no line",
            );
        }
        // In the environment it may be for others.
        if wait.note.is_some() && env::var_os("LEASEHOLD_NOTE").is_none() {
            return refuse("--note", "with --protocol timestamp nobody would see it");
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
    /// The lock of this name.
    pub(crate) fn of(self, client: &Client, name: &str, ttl: Duration) -> TimestampLock {
        let lock = client.timestamp_lock(name).ttl(ttl).unit(self.unit);
        if self.without_scripts {
            lock.without_scripts()
        } else {
            lock
        }
    }
}

/// A lock that is wanted.
pub(crate) struct TimestampRequest<'a> {
    pub(crate) lock: TimestampLock,
    pub(crate) name: &'a str,
    /// See [`link`].
    pub(crate) link: String,
}

/// What tells the runs inside of this one that the lock is theirs already: a time does not say whose it is, so this is the store and
/// the key. For [`CHAIN`], whose links have no spaces.
pub(crate) fn link(store: &str, naming: &[(&'static str, String)], name: &str) -> String {
    let naming = naming.iter().map(|(_, value)| value.as_str());
    // Which is as good as no template.
    let naming = naming.filter(|value| *value != "{}");
    let parts: Vec<&str> = [store].into_iter().chain(naming).chain([name]).collect();
    let bytes = parts.join("\n").into_bytes();
    bytes
        .iter()
        .fold(String::from("timestamp:"), |mut link, byte| {
            // Never fails on a string.
            let _written: fmt::Result = write!(link, "{byte:02x}");
            link
        })
}

/// Waits for the lock, and how long that took.
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
            // A signal first: a lock that arrives together with it is not to be used.
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
                        "{} is busy; asking again and again (timestamp protocol: there is no line)",
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
            Exit::saying(code, format!("{} {said} (exit {code})", quoted(name)))
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
    // Dropping the hold gives the lock back: what was asked to end must not begin.
    match signals.arrived().await {
        Some(signal) => Err(interrupted(signal, terminal)),
        None => Ok((LockGuard::Timestamp { hold, link }, waited)),
    }
}

/// Whether a run around this one took the lock.
fn has_link(link: &str) -> bool {
    env::var(CHAIN).is_ok_and(|chain| chain.split(' ').any(|other| other == link))
}

fn nested(name: &str) -> Exit {
    Exit::saying(
        USAGE,
        format!(
            "{} was taken by a run around this one, and is busy: you already hold this lock, and would wait for it in vain (exit {USAGE})",
            quoted(name)
        ),
    )
}

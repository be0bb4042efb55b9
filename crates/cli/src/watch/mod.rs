//! `leasehold watch`: polls locks and prints each change as a line.

mod compare;
mod line;
mod pattern;

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error};
use leasehold_core::LockName;

use self::compare::{ChangeKind, LockChange, Snapshots, compare};
use self::line::{LockLine, OutputLine, StoreLine};
use self::pattern::Pattern;
use crate::acquire_ui::interrupted;
use crate::exit::Exit;
use crate::inspect::{Look, hidden_names, is_denied, look};
use crate::session::{refused_by_system, with_client};
use crate::signals::Signals;
use crate::store::StoreArgs;
use crate::terminal::Terminal;
use crate::values::duration;
use crate::wait::is_passing;
use crate::{messages, output};

/// The minimal interval: each poll requests every known lock.
const LEAST: Duration = Duration::from_millis(50);

/// Show changes of locks, until interrupted
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Watch {
    #[command(flatten)]
    store: StoreArgs,

    /// One lock, or a pattern: * matches any text, ? any character, \ makes the next character literal
    #[arg(value_name = "PATTERN", default_value = "*")]
    pattern: String,

    /// Polling interval (1s, 250ms; a bare number is seconds), at least 50ms
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print one JSON document in each line (leasehold.watch/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
Polls the locks and prints a line for each change:
  acquired     was free, is held                  released   was held, is free
  handed_over  the holder changed                 queue      the number of waiters changed
  immortal     the lock has no TTL and will not expire
  unanswered   the store does not answer; polling continues until it does (`answered`)
The first lines show the initial state: `held` is a lock that was already held.
  leasehold watch 'jobs:*'

Changes between two polls are not seen: a lock that is taken and released meanwhile prints no line,
and one that changed its holder several times prints one. `released` may be a release, the end of a
lease, or a break. A pattern matches the locks in the store's index: on Redis a lock enters it when
its lease is first renewed or when a client waits for it. A single name is always polled.

Exit codes: 130 by Ctrl-C, 128+n by signal n; 0 when the output is closed; 64 wrong usage or an
invalid name; 69 the store never answered; 77 it refuses user, password or permission; 78 no store,
or a key beside the single watched lock has another type";

/// Runs the verb.
pub(crate) fn watch(args: &Watch) -> Exit {
    begin(args).unwrap_or_else(|exit| exit).without_command()
}

fn begin(args: &Watch) -> Result<Exit, Exit> {
    let pattern = Pattern::new(&args.pattern);
    if let Pattern::Name(name) = &pattern {
        LockName::new(name)?;
    }
    let target = args.store.target()?;
    Ok(with_client(target, async |client, signals| {
        let watching = Watcher {
            client,
            pattern,
            clock: Clock::system(),
            json: args.json,
        };
        watching.on(args.interval, signals).await
    }))
}

struct Watcher<'a> {
    client: &'a Client,
    pattern: Pattern,
    clock: Clock,
    json: bool,
}

impl Watcher<'_> {
    /// Watches until a signal or a permanent failure.
    async fn on(&self, interval: Duration, signals: &mut Signals) -> Result<Exit, Exit> {
        let mut last: Option<Snapshots> = None;
        let (mut is_silent, mut told_hidden) = (false, 0);
        loop {
            let before = last.clone().unwrap_or_default();
            let looked = tokio::select! {
                biased;
                signal = signals.next_ending() => return Err(ended_by(signal)),
                looked = self.look(before) => looked,
            };
            match looked {
                Ok((now, hidden)) => {
                    if hidden > told_hidden {
                        messages::say(&hidden_names(hidden));
                        told_hidden = hidden;
                    }
                    if std::mem::take(&mut is_silent) {
                        self.write(&StoreLine(None))?;
                    }
                    self.tell(last.as_ref(), &now)?;
                    last = Some(now);
                }
                Err(error) if is_passing(&error) => {
                    if !std::mem::replace(&mut is_silent, true) {
                        self.write(&StoreLine(Some(&error.to_string())))?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                biased;
                signal = signals.next_ending() => return Err(ended_by(signal)),
                () = tokio::time::sleep(interval) => {}
            }
        }
    }

    /// One poll of the locks in the index and of those held before, and how many this user may not look at. The index contains hints only.
    async fn look(&self, before: Snapshots) -> Result<(Snapshots, usize), Error> {
        let mut names = match &self.pattern {
            Pattern::Name(name) => vec![name.clone()],
            Pattern::Any(_) => self.client.names().await?,
        };
        names.retain(|name| self.pattern.matches(name));
        names.extend(before.keys().cloned());
        names.sort_unstable();
        names.dedup();
        let (mut now, mut hidden) = (Snapshots::new(), 0);
        for found in look(self.client, &names, Look::Verdict).await? {
            match found.outcome {
                Ok(snapshot) if snapshot.holder.is_some() || !snapshot.queue.is_empty() => {
                    now.insert(found.name, snapshot);
                }
                Ok(_) => {}
                // The only watched lock: continuing would report it as free.
                Err(error) if matches!(self.pattern, Pattern::Name(_)) => return Err(error),
                // Unknown: keep the previous state.
                Err(error) => {
                    hidden += usize::from(is_denied(&error));
                    if let Some(snapshot) = before.get(&found.name) {
                        now.insert(found.name, snapshot.clone());
                    }
                }
            }
        }
        Ok((now, hidden))
    }

    /// Prints the changes, or the initial state.
    fn tell(&self, before: Option<&Snapshots>, now: &Snapshots) -> Result<(), Exit> {
        let (initial, none) = (before.is_none(), Snapshots::new());
        for event in &compare(before.unwrap_or(&none), now) {
            self.write(&LockLine { event, initial })?;
        }
        match &self.pattern {
            Pattern::Name(name) if initial && now.is_empty() => {
                let event = &LockChange {
                    name,
                    what: ChangeKind::Free,
                    holder: None,
                    before: None,
                    queue: 0,
                };
                self.write(&LockLine { event, initial })
            }
            _ => Ok(()),
        }
    }

    fn write(&self, line: &impl OutputLine) -> Result<(), Exit> {
        let time = humantime::format_rfc3339_millis(self.clock.wall()).to_string();
        if self.json {
            let line = line
                .json(&time)
                .map_err(|error| refused_by_system(&std::io::Error::other(error)))?;
            output::print(&line)
        } else {
            output::print(&line.text(&time))
        }
    }
}

fn ended_by(signal: nix::sys::signal::Signal) -> Exit {
    interrupted(signal, Terminal::controlling().as_ref())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < LEAST {
        return Err("must be at least 50ms".into());
    }
    Ok(interval)
}

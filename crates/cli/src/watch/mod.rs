//! `leasehold watch`: polls locks and prints each change as a line.

mod changes;
mod pattern;

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Error};
use leasehold_core::LockName;

use self::changes::{ChangeKind, Line, LockChange, Snapshots, compare};
use self::pattern::Pattern;
use crate::config::duration;
use crate::exit::Exit;
use crate::look::{Look, PollTime, Polled, hidden_names, is_denied, look, poll};
use crate::session::with_client;
use crate::store::StoreArgs;
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
pub(crate) fn watch(args: &Watch) -> Result<Exit, Exit> {
    let pattern = Pattern::new(&args.pattern);
    if let Pattern::Name(name) = &pattern {
        LockName::new(name)?;
    }
    with_client(&args.store.target()?, async |client, signals| {
        let watcher = Watcher {
            client,
            pattern,
            args,
            clock: Clock::system(),
            last: None,
            told_hidden: 0,
        };
        // Only a signal ends it, or a failure that does not pass.
        poll(watcher, None, (Duration::MAX, args.interval), signals).await
    })
}

struct Watcher<'a> {
    client: &'a Client,
    pattern: Pattern,
    args: &'a Watch,
    clock: Clock,
    /// The locks at the last poll, if there was one.
    last: Option<Snapshots>,
    /// The number of hidden names in the last message about them.
    told_hidden: usize,
}

impl Polled<(Snapshots, usize)> for Watcher<'_> {
    /// Asks for the locks in the index, which contains hints only, and for those held before. Also returns the number
    /// of locks that this user may not look at.
    async fn ask(&self) -> Result<(Snapshots, usize), Error> {
        let mut names = match &self.pattern {
            Pattern::Name(name) => vec![name.clone()],
            Pattern::Any(_) => self.client.names().await?,
        };
        let before = self.last.as_ref();
        names.retain(|name| self.pattern.matches(name));
        names.extend(before.into_iter().flat_map(Snapshots::keys).cloned());
        names.sort_unstable();
        names.dedup();
        let (mut locks, mut hidden) = (Snapshots::new(), 0);
        for found in look(self.client, &names, Look::Verdict).await? {
            match found.outcome {
                Ok(snapshot) if snapshot.holder.is_some() || !snapshot.queue.is_empty() => {
                    locks.insert(found.name, snapshot);
                }
                Ok(_) => {}
                // The only watched lock: continuing would report it as free.
                Err(error) if matches!(self.pattern, Pattern::Name(_)) => return Err(error),
                // Unknown: keep the previous state.
                Err(error) => {
                    hidden += usize::from(is_denied(&error));
                    if let Some(snapshot) = before.and_then(|before| before.get(&found.name)) {
                        locks.insert(found.name, snapshot.clone());
                    }
                }
            }
        }
        Ok((locks, hidden))
    }

    fn hear(
        &mut self,
        (locks, hidden): (Snapshots, usize),
        at: PollTime,
    ) -> Result<Duration, Exit> {
        if hidden > self.told_hidden {
            messages::say(&hidden_names(hidden));
            self.told_hidden = hidden;
        }
        if at.after_outage {
            self.write(&Line::Store(None))?;
        }
        self.tell(&locks)?;
        self.last = Some(locks);
        Ok(self.args.interval)
    }

    fn miss(&mut self, error: &Error) -> Result<(), Exit> {
        self.write(&Line::Store(Some(&error.to_string())))
    }
}

impl Watcher<'_> {
    /// Prints the changes, or the initial state.
    fn tell(&self, now: &Snapshots) -> Result<(), Exit> {
        let (initial, none) = (self.last.is_none(), Snapshots::new());
        for event in &compare(self.last.as_ref().unwrap_or(&none), now) {
            self.write(&Line::Lock { event, initial })?;
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
                self.write(&Line::Lock { event, initial })
            }
            _ => Ok(()),
        }
    }

    fn write(&self, line: &Line<'_>) -> Result<(), Exit> {
        let time = humantime::format_rfc3339_millis(self.clock.wall()).to_string();
        output::print(&if self.args.json {
            line.json(&time)
        } else {
            line.text(&time)
        })
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < LEAST {
        return Err("must be at least 50ms".into());
    }
    Ok(interval)
}

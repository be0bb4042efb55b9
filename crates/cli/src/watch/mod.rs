//! `leasehold watch`: what happens to locks, as one line each. Must never claim to have seen what happens between two looks.

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
use crate::inspect::look;
use crate::output;
use crate::session::{refused_by_system, with_client};
use crate::signals::Signals;
use crate::store::StoreArgs;
use crate::terminal::Terminal;
use crate::values::duration;
use crate::wait::is_passing;

/// The least time between two looks: each asks the store about every lock that it knows.
const LEAST: Duration = Duration::from_millis(50);

/// Show what happens to locks, until interrupted
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Watch {
    #[command(flatten)]
    store: StoreArgs,

    /// One lock, or all whose name matches: * is any text, ? any character, \ takes the next as it is
    #[arg(value_name = "PATTERN", default_value = "*")]
    pattern: String,

    /// How often to look (1s, 250ms; a bare number is seconds), at least 50ms
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// One JSON document in each line (leasehold.watch/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
Looks at the locks again and again, and writes a line for each difference:
  acquired     it was free and is held            released   it was held and is free
  handed_over  another holds it than before       queue      more or fewer wait for it
  immortal     it has no TTL: nobody will free it
  unanswered   the store does not answer; this goes on until it does, which is `answered`
The first lines tell how things stand: `held` is a lock that was held already.
  leasehold watch 'jobs:*'

ChangeKind happens between two looks is not seen: a lock that is taken and released meanwhile makes no
line, and one that changed hands often makes one. `released` may be a release, the end of a lease,
or a break. With a pattern, the locks are those in the store's index: on Redis one gets there when
its lease is first renewed or someone waits for it. One name is always looked at.

Exit codes: 130 by Ctrl-C, 128+n by signal n; 0 when nobody reads the output any more; 64 wrong use
or a bad name; 69 the store never answered; 77 it refuses user, password or permission; 78 no store,
or a key beside the one lock that is watched holds something else";

/// Does it.
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
    /// Watches on until a signal or a failure that will not pass.
    async fn on(&self, interval: Duration, signals: &mut Signals) -> Result<Exit, Exit> {
        let mut last: Option<Snapshots> = None;
        let mut is_silent = false;
        loop {
            let before = last.clone().unwrap_or_default();
            let looked = tokio::select! {
                biased;
                signal = signals.next_ending() => return Err(ended_by(signal)),
                looked = self.look(before) => looked,
            };
            match looked {
                Ok(now) => {
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

    /// One look at what is in the index, and at what was held before: the index holds hints only.
    async fn look(&self, before: Snapshots) -> Result<Snapshots, Error> {
        let mut names = match &self.pattern {
            Pattern::Name(name) => vec![name.clone()],
            Pattern::Any(_) => self.client.names().await?,
        };
        names.retain(|name| self.pattern.matches(name));
        names.extend(before.keys().cloned());
        names.sort_unstable();
        names.dedup();
        let mut now = Snapshots::new();
        for found in look(self.client, &names).await? {
            match found.outcome {
                Ok(snapshot) if snapshot.holder.is_some() || !snapshot.queue.is_empty() => {
                    now.insert(found.name, snapshot);
                }
                Ok(_) => {}
                // All that was asked for: to go on would be to call it free.
                Err(error) if matches!(self.pattern, Pattern::Name(_)) => return Err(error),
                // Not known: as before, for all we know.
                Err(_) => {
                    if let Some(snapshot) = before.get(&found.name) {
                        now.insert(found.name, snapshot.clone());
                    }
                }
            }
        }
        Ok(now)
    }

    /// Tells what has changed, or how things stand.
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

//! `leasehold inspect`: who holds what, who waits, since when. Must never change a lock, and never search the whole store.

mod detail;
mod table;

use clap::Args;
use futures_util::future::join_all;
use leasehold::{Client, Error, Snapshot, StoreErrorKind};
use leasehold_core::LockName;
use serde::Serialize;

use crate::exit::Exit;
use crate::messages::say;
use crate::output;
use crate::session::with_client;
use crate::store::StoreArgs;
use crate::view::{LockJson, is_for_ever, is_free};

/// How many locks are looked at in one go.
const AT_ONCE: usize = 256;

/// Show who holds locks, who waits for them, and how long their leases last
#[derive(Debug, Args)]
#[command(visible_alias = "ls", after_help = ABOUT)]
pub(crate) struct Inspect {
    #[command(flatten)]
    store: StoreArgs,

    /// The locks; none of them means all that are held or waited for
    #[arg(value_name = "LOCK")]
    names: Vec<String>,

    /// All locks that are held or waited for, which is meant without a name as well
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// Show at most this many locks; those that need attention come first
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// One JSON document instead of text (leasehold.inspect/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
With one name, all that is known of that lock, and exit 0 whether it is held or free. With several
or none, a table: first the locks that never end, then those that most wait for.

Without a name, an index is read: the store is never searched. On Redis a lock is put into it when
its lease is first renewed (after a third of its TTL) or when someone waits for it, so that locks
which are held for a moment cost nothing more. A lock that was taken just now, or another program's
that no one of ours waits for, is missing from the list: give its name.

A lock of another program is named as what it looks like, which is a guess. Its value is not shown.
  leasehold inspect db-migrate
  leasehold inspect --json | jq '.locks[].name'

Exit codes: 0 shown; 64 wrong use or a bad name; 69 the store does not answer; 77 it refuses user,
password or permission; 78 no store, or a key beside the lock holds something else";

/// What was found under one name.
pub(crate) struct InspectedLock {
    pub(crate) name: String,
    pub(crate) outcome: Result<Snapshot, Error>,
}

#[derive(Serialize)]
struct InspectReport<'a> {
    schema: &'static str,
    store: &'a str,
    locks: Vec<InspectEntry<'a>>,
    omitted: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InspectEntry<'a> {
    Known(LockJson<'a>),
    Unknown {
        name: &'a str,
        state: &'static str,
        error: String,
    },
}

/// Does it.
pub(crate) fn inspect(args: &Inspect) -> Exit {
    begin(args).unwrap_or_else(|exit| exit).without_command()
}

fn begin(args: &Inspect) -> Result<Exit, Exit> {
    for name in &args.names {
        LockName::new(name)?;
    }
    let target = args.store.target()?;
    Ok(with_client(target, async |client, signals| {
        tokio::select! {
            biased;
            signal = signals.next_ending() => Err(Exit::by(signal)),
            done = show(client, args) => done,
        }
    }))
}

async fn show(client: &Client, args: &Inspect) -> Result<Exit, Exit> {
    if !args.json && client.store().starts_with("local:") {
        say(&format!("{}: this host only", client.store()));
    }
    let mut found = if args.names.is_empty() {
        let mut found = look(client, &client.names().await?).await?;
        found.retain(|found| match &found.outcome {
            Ok(snapshot) => !is_free(snapshot),
            // What cannot be a name is nobody's lock.
            Err(error) => !matches!(error, Error::Invalid(_)),
        });
        found
    } else {
        look(client, &args.names).await?
    };
    // One lock, and nothing to be told from it.
    if let (
        [
            InspectedLock {
                name,
                outcome: Ok(snapshot),
            },
        ],
        [_],
        false,
    ) = (found.as_slice(), args.names.as_slice(), args.json)
    {
        output::print(&detail::of(name, &args.store.again_with(name), snapshot))?;
        return Ok(Exit::quiet(0));
    }
    if args.names.is_empty() {
        found.sort_by(|a, b| {
            urgency(a)
                .cmp(&urgency(b))
                .then_with(|| a.name.cmp(&b.name))
        });
    }
    let omitted = found.len().saturating_sub(args.limit.unwrap_or(usize::MAX));
    found.truncate(found.len() - omitted);
    print(client, args, &found, omitted)?;
    let unknown = found.into_iter().find_map(|found| found.outcome.err());
    Ok(unknown.map_or(Exit::quiet(0), Exit::from))
}

/// Looks at all of them. Fails as a whole if the store does not answer; an answer about one lock that makes no sense
/// concerns that lock.
pub(crate) async fn look(client: &Client, names: &[String]) -> Result<Vec<InspectedLock>, Error> {
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        let outcomes = join_all(some.iter().map(|name| client.inspect(name))).await;
        for (name, outcome) in some.iter().zip(outcomes) {
            match outcome {
                Err(error) if !is_about_one(&error) => return Err(error),
                outcome => found.push(InspectedLock {
                    name: name.clone(),
                    outcome,
                }),
            }
        }
    }
    Ok(found)
}

/// Whether an error says nothing of other locks.
fn is_about_one(error: &Error) -> bool {
    match error {
        Error::Invalid(_) => true,
        Error::Store(error) => error.kind == StoreErrorKind::Protocol,
        _ => false,
    }
}

/// What comes first in the list: what cannot be known, what never ends, what most wait for.
fn urgency(found: &InspectedLock) -> (u8, std::cmp::Reverse<usize>) {
    let Ok(snapshot) = &found.outcome else {
        return (0, std::cmp::Reverse(0));
    };
    let endless = snapshot.holder.as_ref().is_some_and(is_for_ever);
    (
        if endless { 1 } else { 2 },
        std::cmp::Reverse(snapshot.queue.len()),
    )
}

fn print(
    client: &Client,
    args: &Inspect,
    found: &[InspectedLock],
    omitted: usize,
) -> Result<(), Exit> {
    if args.json {
        return output::print_json(&InspectReport {
            schema: "leasehold.inspect/1",
            store: client.store(),
            locks: found.iter().map(InspectEntry::of).collect(),
            omitted,
        });
    }
    if found.is_empty() && args.names.is_empty() {
        say(
            "no lock is known to be held or waited for; one that was taken just now may be missing: give its name",
        );
        return Ok(());
    }
    let rows: Vec<table::Row> = found
        .iter()
        .map(|found| table::row(&found.name, found.outcome.as_ref().ok()))
        .collect();
    output::print(&table::of(&rows, output::columns()))?;
    if omitted > 0 {
        say(&format!("{omitted} more are not shown (--limit)"));
    }
    Ok(())
}

impl<'a> InspectEntry<'a> {
    fn of(found: &'a InspectedLock) -> Self {
        match &found.outcome {
            Ok(snapshot) => Self::Known(LockJson::of(&found.name, snapshot)),
            Err(error) => Self::Unknown {
                name: &found.name,
                state: "unknown",
                error: error.to_string(),
            },
        }
    }
}

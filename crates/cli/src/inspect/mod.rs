//! `leasehold inspect`: shows holders, waiters and leases. Reads only, and never scans the store.

mod text;

use std::cmp::Reverse;
use std::io;

use clap::Args;
use leasehold::{Client, Error};
use leasehold_core::LockName;
use serde::Serialize;

use crate::exit::Exit;
use crate::look::{InspectedLock, Look, hidden_names, is_denied, look};
use crate::messages::say;
use crate::session::with_client_until_signal;
use crate::store::StoreArgs;
use crate::view::{LockJson, NodeJson, is_free, never_expires};
use crate::{output, sys};

/// Show the holders of locks, their waiters, and the rest of their leases
#[derive(Debug, Args)]
#[command(visible_alias = "ls", after_help = ABOUT)]
pub(crate) struct Inspect {
    #[command(flatten)]
    store: StoreArgs,

    /// The locks; without a name, all that are held or waited for
    #[arg(value_name = "LOCK")]
    names: Vec<String>,

    /// All locks that are held or waited for (the default without a name)
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// Show at most this many locks; the ones that need attention come first
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Print one JSON document instead of text (leasehold.inspect/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
With one name, prints all details of that lock, and exits with 0 whether it is held or free. With
several names or none, prints a table: first the locks that never end, then those with most waiters.
Of a quorum, the details have the votes for the holder, and each node that sees something else.

Without a name, reads an index; the store is never scanned. On Redis a lock enters the index when its
lease is first renewed (after a third of its TTL) or when a client waits for it, so locks held for a
moment cost nothing more. A lock taken just now, or a foreign lock that no Leasehold client waits for,
is missing from the list: give its name.

The program of a foreign lock is guessed from its format. The value of the lock is not shown.
  leasehold inspect db-migrate
  leasehold inspect --json | jq '.locks[].name'

Exit codes: 0 shown; 64 wrong usage or an invalid name; 69 the store does not answer; 77 it refuses
user, password or permission; 78 no store, or a key beside the lock has another type";

#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.inspect/1")]
struct InspectReport<'a> {
    store: &'a str,
    locks: Vec<InspectEntry<'a>>,
    omitted: usize,
    hidden: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InspectEntry<'a> {
    Known {
        #[serde(flatten)]
        lock: LockJson<'a>,
        nodes: Option<Vec<NodeJson<'a>>>,
    },
    Unknown {
        name: &'a str,
        state: &'static str,
        error: String,
        nodes: Option<Vec<NodeJson<'a>>>,
    },
}

/// Runs the verb.
pub(crate) fn inspect(args: &Inspect) -> Result<Exit, Exit> {
    for name in &args.names {
        LockName::new(name)?;
    }
    with_client_until_signal(&args.store.target()?, async |client| {
        show(client, args).await
    })
}

async fn show(client: &Client, args: &Inspect) -> Result<Exit, Exit> {
    if !args.json && client.store().starts_with("local:") {
        say(&format!("{}: this host only", client.store()));
    }
    let mut hidden = 0;
    let mut found = if args.names.is_empty() {
        let mut found = look(client, &client.names().await?, Look::EachNode).await?;
        found.retain(|found| match &found.outcome {
            Ok(snapshot) => !is_free(snapshot),
            Err(error) if is_denied(error) => {
                hidden += 1;
                false
            }
            // An invalid name belongs to no lock.
            Err(error) => !matches!(error, Error::Invalid(_)),
        });
        found
    } else {
        let found = look(client, &args.names, Look::EachNode).await?;
        let is_hidden =
            |found: &InspectedLock| matches!(&found.outcome, Err(error) if is_denied(error));
        if let (true, Some(Err(error))) = (
            found.iter().all(is_hidden),
            found.first().map(|found| &found.outcome),
        ) {
            // It may be the user that is refused, and not a lock.
            return Err(error.clone().into());
        }
        found
    };
    // A single lock has a page with all details.
    if let ([one], [name], false) = (found.as_slice(), args.names.as_slice(), args.json)
        && let Ok(snapshot) = &one.outcome
    {
        let pasted = args.store.again_with(name);
        let page = text::detail(name, &pasted, snapshot, one.nodes.as_ref());
        output::print(&page)?;
        return Ok(Exit::quiet(0));
    }
    if args.names.is_empty() {
        found.sort_by_cached_key(|found| (urgency(found), found.name.clone()));
    }
    let omitted = found.len().saturating_sub(args.limit.unwrap_or(usize::MAX));
    found.truncate(found.len() - omitted);
    print(client, args, &found, omitted, hidden)?;
    let unknown = found.into_iter().find_map(|found| found.outcome.err());
    unknown.map_or(Ok(Exit::quiet(0)), |error| Err(error.into()))
}

/// The sort key: unknown locks first, then endless ones, then those with the most waiters.
fn urgency(found: &InspectedLock) -> (u8, Reverse<usize>) {
    let Ok(snapshot) = &found.outcome else {
        return (0, Reverse(0));
    };
    let endless = snapshot.holder.as_ref().is_some_and(never_expires);
    (if endless { 1 } else { 2 }, Reverse(snapshot.queue.len()))
}

fn print(
    client: &Client,
    args: &Inspect,
    found: &[InspectedLock],
    omitted: usize,
    hidden: usize,
) -> Result<(), Exit> {
    if args.json {
        return output::print_json(&InspectReport {
            store: client.store(),
            locks: found.iter().map(InspectEntry::of).collect(),
            omitted,
            hidden,
        });
    }
    if hidden > 0 {
        say(&hidden_names(hidden));
    }
    if found.is_empty() && args.names.is_empty() {
        say(
            "no lock is known to be held or waited for; a lock taken just now may be missing: give its name",
        );
        return Ok(());
    }
    let rows = found.iter();
    let rows: Vec<text::Row> = rows
        .map(|found| text::row(&found.name, found.outcome.as_ref().ok()))
        .collect();
    output::print(&text::table(&rows, sys::columns(io::stdout())))?;
    if omitted > 0 {
        say(&format!("{omitted} more are not shown (--limit)"));
    }
    Ok(())
}

impl<'a> InspectEntry<'a> {
    fn of(found: &'a InspectedLock) -> Self {
        let nodes = found.nodes.as_ref();
        let nodes = nodes.map(|nodes| nodes.nodes.iter().map(NodeJson::of).collect());
        match &found.outcome {
            Ok(snapshot) => Self::Known {
                lock: LockJson::of(&found.name, snapshot),
                nodes,
            },
            Err(error) => Self::Unknown {
                name: &found.name,
                state: "unknown",
                error: error.to_string(),
                nodes,
            },
        }
    }
}

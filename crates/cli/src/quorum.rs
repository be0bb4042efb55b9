//! `leasehold quorum init`: marks the servers of a new quorum, so that they vote at once.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::QuorumInit;
use serde::Serialize;

use crate::exit::Exit;
use crate::messages::span;
use crate::output;
use crate::session::in_runtime;
use crate::store::StoreArgs;
use crate::view::millis;

/// Prepare the servers of a quorum
#[derive(Debug, Args)]
pub(crate) struct Quorum {
    #[command(subcommand)]
    verb: QuorumVerb,
}

#[derive(Debug, Subcommand)]
enum QuorumVerb {
    Init(Init),
}

/// Mark the servers of a new quorum, so that they vote at once
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
struct Init {
    #[command(flatten)]
    store: StoreArgs,

    /// Replace the marks of another quorum. First stop all clients
    #[arg(long)]
    again: bool,

    /// Print one JSON document (leasehold.quorum-init/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
A quorum is experimental: docs/guarantees.md names its known faults.

A server without a mark may have lost its data. The first client that asks it for a vote marks it,
and it gives no vote until all leases from before have ended (61 s by default). For a new quorum
there are no such leases, so this command marks the servers, and they vote at once. It changes
nothing if they have the mark of this quorum, and refuses any other mark.

With --again it replaces the marks: to change the number of servers or max_ttl. Stop all clients
first. The servers then vote when the leases under the former terms have ended.
  leasehold quorum init --url redis+quorum://a.internal,b.internal,c.internal/
  leasehold quorum init --url redis://a --url redis://b --url redis://c

Exit codes: 0 the servers are marked; 69 a server does not answer; 77 it refuses user, password or
permission; 78 a server is a replica, is named twice, or has another mark, or is not trusted; 64 wrong usage";

#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.quorum-init/1")]
struct InitReport<'a> {
    store: &'a str,
    outcome: &'static str,
    votes_in_ms: u64,
}

/// Runs the verb.
pub(crate) fn quorum(args: &Quorum) -> Result<Exit, Exit> {
    let QuorumVerb::Init(args) = &args.verb;
    let target = args.store.target()?;
    let outcome = in_runtime(async {
        let outcome = target.init_quorum(args.again).await;
        outcome.map_err(|error| target.explained(error).about_no_lock())
    })?;
    let (name, said, votes_in) = match outcome {
        QuorumInit::New => (
            "new",
            "its servers are marked and vote now".to_owned(),
            Duration::ZERO,
        ),
        QuorumInit::Already { votes_in } => {
            let wait = format!(", and all of them vote in {}", span(votes_in));
            let wait = if votes_in.is_zero() { "" } else { &wait };
            let said = format!("its servers have this mark already{wait}; nothing was changed");
            ("already", said, votes_in)
        }
        QuorumInit::Again { votes_in } => {
            let said = format!("its servers are marked anew and vote in {}", span(votes_in));
            ("again", said, votes_in)
        }
        other => ("other", format!("{other:?}"), Duration::ZERO),
    };
    let store = target.shown();
    if args.json {
        output::print_json(&InitReport {
            store: &store,
            outcome: name,
            votes_in_ms: millis(votes_in),
        })?;
    } else {
        output::print(&format!("{store}: {said}\n"))?;
    }
    Ok(Exit::quiet(0))
}

//! `leasehold break`: frees the lock of a dead holder, which is identified by its fence. It never frees a lock
//! of another program.

use clap::Args;
use leasehold::{Client, Fence, HolderIdentity, HolderView, Snapshot};
use leasehold_core::{Block, Fences, LockName};
use serde::Serialize;

use crate::exit::{BUSY, CONFIG, Exit, USAGE, exit};
use crate::messages::{quoted, say, span};
use crate::output;
use crate::session::with_client_until_signal;
use crate::store::StoreArgs;
use crate::view::{
    HolderFields, foreign, held_of, is_cache_entry, lease_of, millis, phase, several, who,
};

/// Free the lock of a dead holder, if this fence is still the holder's
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Break {
    #[command(flatten)]
    store: StoreArgs,

    /// The lock
    #[arg(value_name = "LOCK")]
    name: String,

    /// The holder's fence, as shown by `leasehold inspect LOCK`
    #[arg(long, value_name = "N")]
    if_fence: Option<u64>,

    /// Print one JSON document about the outcome (leasehold.break/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
Make sure first that the holder is dead or stuck for good: this does not stop it. A live holder
learns of the break at its next renewal and then stops its work. Until then two clients may work at
the same time, since the first in line gets the lock at once. The fence identifies the lease: if
another client holds the lock by now, nothing changes. A foreign lock has no fence and is never broken.
  leasehold inspect db-migrate                         shows the fence, say 41
  leasehold break --if-fence 41 db-migrate

Exit codes: 0 broken, or already free; 75 another client holds it; 64 no --if-fence, wrong usage or
an invalid name; 78 a foreign lock, or no store; 69 the store does not answer: check with
`leasehold inspect`; 77 it refuses user, password or permission";

#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.break/1")]
struct BreakReport<'a> {
    store: &'a str,
    name: &'a str,
    outcome: &'static str,
    if_fence: Option<u64>,
    #[serde(flatten)]
    holder: HolderFields,
    told_within_ms: Option<u64>,
}

/// Runs the verb.
pub(crate) fn break_lock(args: &Break) -> Result<Exit, Exit> {
    LockName::new(&args.name)?;
    with_client_until_signal(&args.store.target()?, async |client| {
        carry_out(client, args).await
    })
}

async fn carry_out(client: &Client, args: &Break) -> Result<Exit, Exit> {
    let name = args.name.as_str();
    let mut seen = client.inspect(name).await?;
    if let Some(fence) = args.if_fence {
        let named = Fence::new(fence);
        if client.break_lock(name, named).await? {
            // If another holder came meanwhile, the broken one is unknown. Any fence of a block identifies its
            // holder.
            let block = Block::MOST;
            let may_have_it = |first| Fences { first, block }.contains(named);
            let is_meant = |holder: &HolderView| holder.fence.is_some_and(may_have_it);
            let broken = seen.holders().find(|holder| is_meant(holder)).cloned();
            let is_one = !seen.others.is_empty() && phase(&seen).is_none();
            let broken_text = broken_text(name, fence, broken.as_ref(), phase(&seen), is_one);
            say(&broken_text);
            report(client, args, "broken", broken.as_ref())?;
            return Ok(Exit::quiet(0));
        }
        seen = client.inspect(name).await?;
    }
    let (outcome, exit) = not_broken(args, &seen);
    report(client, args, outcome, seen.holder.as_ref())?;
    Ok(exit)
}

/// The message after a break: the freed lease, or those of all `readers`, and when their holders learn of it. With `is_one`, others hold
/// beside that one.
fn broken_text(
    name: &str,
    fence: u64,
    holder: Option<&HolderView>,
    readers: Option<String>,
    is_one: bool,
) -> String {
    let name = quoted(name);
    let Some(holder) = holder else {
        return format!(
            "{name} was broken, fence {fence}\n    its holder learns of it at its next renewal"
        );
    };
    let at_most = holder
        .expires_in
        .map(|left| format!(", within {} if it lives", span(left)));
    let at_most = at_most.unwrap_or_default();
    if let Some(readers) = readers {
        return format!(
            "{name} was broken: it was held by {readers}, fence {fence}\n    each learns of it at its next renewal{at_most}; until then it may continue its work"
        );
    }
    let slot = match holder.slot {
        Some(slot) => format!("slot {slot} of "),
        None if is_one => "one reader of ".to_owned(),
        None => String::new(),
    };
    format!(
        "{slot}{name} was broken: it was held by {}, fence {fence}\n    its holder learns of it at its next renewal{at_most}; until then it may continue its work",
        who(holder)
    )
}

/// The exit for a lock that was not held with the given fence, or without a given one.
fn not_broken(args: &Break, seen: &Snapshot) -> (&'static str, Exit) {
    let name = quoted(&args.name);
    let Some(holder) = &seen.holder else {
        if args.if_fence.is_some() {
            say(&format!("{name} is free already: nothing was broken"));
            return ("free", Exit::quiet(0));
        }
        let missing = exit!(
            USAGE,
            "--if-fence is missing (exit {USAGE}); {name} is free, there is nothing to break"
        );
        return ("refused", missing);
    };
    if let HolderIdentity::Foreign { kind, value } = &holder.who {
        return ("foreign", of_another(&args.name, kind, value));
    }
    let rows = holder_rows(args, holder, seen);
    if let Some(fence) = args.if_fence {
        let other = exit!(
            BUSY,
            "{name} is not held with fence {fence}: nothing was broken (exit {BUSY})\n{rows}"
        );
        return ("held", other);
    }
    let missing = exit!(
        USAGE,
        "--if-fence is missing: it identifies the lease to break (exit {USAGE})\n{rows}"
    );
    ("refused", missing)
}

fn of_another(name: &str, kind: &str, value: &[u8]) -> Exit {
    let name = quoted(name);
    if is_cache_entry(kind, value) {
        return exit!(
            CONFIG,
            "{name} is the name of a cache entry of leasehold, and break frees locks only (exit {CONFIG})"
        );
    }
    exit!(
        CONFIG,
        "{name} is held by another program, and leasehold never breaks a foreign lock (exit {CONFIG})\n    \
         holder  a foreign lock: {}\n    \
         next    free it with the program that set it; if that program is gone for good, delete the key",
        foreign(kind, value)
    )
}

/// The rows about the holder, and the command that breaks its lease.
fn holder_rows(args: &Break, holder: &HolderView, seen: &Snapshot) -> String {
    let lease = lease_of(holder, "never ends");
    let (fence, next) = match holder.fence {
        Some(fence) => (
            format!(", fence {fence}"),
            format!(
                "leasehold break --if-fence {fence} {}",
                args.store.again_with(&args.name)
            ),
        ),
        None => (
            ", its fence is not known to the store".into(),
            "look again after its next renewal, which draws a new fence".into(),
        ),
    };
    let held = held_of(holder);
    let several = match several(seen).filter(|_| !seen.others.is_empty()) {
        // One of them was meant.
        Some(slots) if phase(seen).is_none() => {
            let inspect = format!("leasehold inspect {}", args.store.again_with(&args.name));
            format!("\n            {inspect}  (shows all: {slots})")
        }
        Some(readers) => format!("\n            (ends all: {readers})"),
        None => String::new(),
    };
    format!(
        "    holder  {}{held}{fence}\n    lease   {lease}\n    next    {next}{several}",
        who(holder)
    )
}

fn report(
    client: &Client,
    args: &Break,
    outcome: &'static str,
    holder: Option<&HolderView>,
) -> Result<(), Exit> {
    if !args.json {
        return Ok(());
    }
    let left = holder.and_then(|holder| holder.expires_in);
    output::print_json_answer(&BreakReport {
        store: client.store(),
        name: &args.name,
        outcome,
        if_fence: args.if_fence,
        holder: HolderFields::of(holder),
        told_within_ms: left.filter(|_| outcome == "broken").map(millis),
    })
}

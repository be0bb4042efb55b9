//! `leasehold break`: frees the lock of a dead holder, which is identified by its fence or by its id. It never frees a lock of another
//! program.

use clap::Args;
use leasehold::{Client, Fence, HolderIdentity, HolderView, Owner, Snapshot};
use leasehold_core::{Block, Fences, LockName};
use serde::Serialize;

use crate::exit::{BUSY, CONFIG, Exit, USAGE, exit};
use crate::messages::{quoted, say, span};
use crate::output;
use crate::session::with_client_until_signal;
use crate::store::StoreArgs;
use crate::view::{
    HolderFields, foreign, held_of, holders, id_of, is_cache_entry, lease_of, millis, phase,
    several, who,
};

/// Free the lock of a dead holder, if this fence or this id is still the holder's
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

    /// One holder of several: the first 8 or more digits of its id, as shown by `leasehold inspect LOCK`
    #[arg(long, value_name = "ID", value_parser = id, conflicts_with = "if_fence")]
    holder: Option<String>,

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
Readers have one fence, which ends all of them. The id of a holder ends that one only:
  leasehold break --holder 3f0a91c27b54 prices

Exit codes: 0 broken, or already free; 75 another client holds it; 64 neither --if-fence nor --holder,
an id of several holders, wrong usage or an invalid name; 78 a foreign lock, or no store; 69 the store does not answer: check with
`leasehold inspect`; 77 it refuses user, password or permission";

#[derive(Serialize)]
#[serde(tag = "schema", rename = "leasehold.break/1")]
struct BreakReport<'a> {
    store: &'a str,
    name: &'a str,
    outcome: &'static str,
    if_fence: Option<u64>,
    if_holder: Option<&'a str>,
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

/// The fewest digits by which a holder is named.
const FEWEST: usize = 8;

/// The first digits of an owner's id.
fn id(text: &str) -> Result<String, String> {
    let is_id = text.len() >= FEWEST && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "takes the first {FEWEST} or more hexadecimal digits of an id, as `leasehold inspect` shows it"
        ))
    }
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
            say(&broken_text(name, fence, broken.as_ref(), phase(&seen)));
            report(client, args, "broken", broken.as_ref())?;
            return Ok(Exit::quiet(0));
        }
        seen = client.inspect(name).await?;
    }
    if let Some(digits) = &args.holder {
        let mut meant = named(&seen, digits);
        if let (Some((holder, owner)), None) = (meant.next(), meant.next()) {
            if client.break_holder(name, owner).await? {
                say(&ended_text(name, holder, holders(&seen) - 1));
                report(client, args, "broken", Some(holder))?;
                return Ok(Exit::quiet(0));
            }
            drop(meant);
            seen = client.inspect(name).await?;
        }
    }
    let (outcome, exit) = not_broken(args, &seen);
    report(client, args, outcome, seen.holder.as_ref())?;
    Ok(exit)
}

/// The holders whose ids begin with these digits.
fn named<'a>(
    seen: &'a Snapshot,
    digits: &'a str,
) -> impl Iterator<Item = (&'a HolderView, &'a Owner)> {
    seen.holders().filter_map(move |holder| match &holder.who {
        HolderIdentity::Owner(owner) if owner.id().starts_with(digits) => Some((holder, owner)),
        _ => None,
    })
}

/// The message after the break of one holder, beside whom `others` hold on.
fn ended_text(name: &str, holder: &HolderView, others: usize) -> String {
    let others = match others {
        0 => String::new(),
        others => format!("; {others} more hold on"),
    };
    format!(
        "{}{} was broken: it was held by {}{others}\n    its holder learns of it at its next renewal{}; until then it may continue its work",
        slot_of(holder),
        quoted(name),
        who(holder),
        told_by(holder)
    )
}

/// `slot 2 of `, or nothing for a holder without a slot.
fn slot_of(holder: &HolderView) -> String {
    let slot = holder.slot.map(|slot| format!("slot {slot} of "));
    slot.unwrap_or_default()
}

/// When a holder that lives learns of the break at the latest.
fn told_by(holder: &HolderView) -> String {
    let at_most = holder
        .expires_in
        .map(|left| format!(", within {} if it lives", span(left)));
    at_most.unwrap_or_default()
}

/// The message after a break: the freed lease, or those of all `readers`, and when their holders learn of it.
fn broken_text(
    name: &str,
    fence: u64,
    holder: Option<&HolderView>,
    readers: Option<String>,
) -> String {
    let name = quoted(name);
    let Some(holder) = holder else {
        return format!(
            "{name} was broken, fence {fence}\n    its holder learns of it at its next renewal"
        );
    };
    let at_most = told_by(holder);
    if let Some(readers) = readers {
        return format!(
            "{name} was broken: it was held by {readers}, fence {fence}\n    each learns of it at its next renewal{at_most}; until then it may continue its work"
        );
    }
    format!(
        "{}{name} was broken: it was held by {}, fence {fence}\n    its holder learns of it at its next renewal{at_most}; until then it may continue its work",
        slot_of(holder),
        who(holder)
    )
}

/// The exit for a lock that was not held with the given fence or by the given holder, or without a given one.
fn not_broken(args: &Break, seen: &Snapshot) -> (&'static str, Exit) {
    let name = quoted(&args.name);
    let Some(holder) = &seen.holder else {
        if args.if_fence.is_some() || args.holder.is_some() {
            say(&format!("{name} is free already: nothing was broken"));
            return ("free", Exit::quiet(0));
        }
        let missing = exit!(
            USAGE,
            "--if-fence or --holder is missing (exit {USAGE}); {name} is free, there is nothing to break"
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
    if let Some(digits) = &args.holder {
        return match named(seen, digits).count() {
            0 => {
                let none = exit!(
                    BUSY,
                    "no holder of {name} has an id that begins with {digits}: nothing was broken (exit {BUSY})\n{rows}"
                );
                ("held", none)
            }
            several => {
                let several = exit!(
                    USAGE,
                    "{several} holders of {name} have an id that begins with {digits}: type more digits (exit {USAGE})\n{rows}"
                );
                ("refused", several)
            }
        };
    }
    let missing = exit!(
        USAGE,
        "--if-fence or --holder is missing: it identifies the lease to break (exit {USAGE})\n{rows}"
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

/// The rows about the holder, and the commands that break its lease. If several hold the lock, one of them was meant.
fn holder_rows(args: &Break, holder: &HolderView, seen: &Snapshot) -> String {
    let pasted = args.store.again_with(&args.name);
    let fence = holder.fence.map_or_else(
        || ", its fence is not known to the store".into(),
        |fence| format!(", fence {fence}"),
    );
    let mut next: Vec<String> = Vec::new();
    if let Some(fence) = holder.fence {
        next.push(format!("leasehold break --if-fence {fence} {pasted}"));
    }
    let several = several(seen).filter(|_| !seen.others.is_empty());
    if let (Some(_), Some(readers)) = (&several, phase(seen)) {
        next.push(format!("(ends all: {readers})"));
    }
    if let Some(id) = id_of(holder).filter(|_| phase(seen).is_some() || next.is_empty()) {
        next.push(format!("leasehold break --holder {id} {pasted}"));
    }
    if let Some(several) = several {
        next.push(format!(
            "leasehold inspect {pasted}  (shows all: {several})"
        ));
    }
    format!(
        "    holder  {}{}{fence}\n    lease   {}\n    next    {}",
        who(holder),
        held_of(holder),
        lease_of(holder, "never ends"),
        next.join("\n            ")
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
        if_holder: args.holder.as_deref(),
        holder: HolderFields::of(holder),
        told_within_ms: left.filter(|_| outcome == "broken").map(millis),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::view::samples::{held, readers};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Break,
    }

    fn args(words: &[&str]) -> Result<Break, clap::Error> {
        let line = Line::try_parse_from([&["break"], words].concat());
        line.map(|line| line.args)
    }

    #[test]
    fn an_id_is_eight_or_more_digits() {
        assert!(args(&["x", "--holder", "0123ABCD"]).is_ok());
        for wrong in ["0123abc", "0123abcg", ""] {
            let refused = args(&["x", "--holder", wrong]).expect_err(wrong);
            assert!(refused.to_string().contains("first 8 or more"), "{refused}");
        }
        let both = args(&["x", "--holder", "01234567", "--if-fence", "7"]);
        assert!(both.is_err());
    }

    #[test]
    fn an_id_that_names_none_or_two_says_what_to_type() {
        let says = |digits: &str, seen: &Snapshot| {
            let args = args(&["x", "--holder", digits]).expect("digits");
            let (outcome, exit) = not_broken(&args, seen);
            (outcome, exit.code(), exit.text().to_owned())
        };
        let seen = readers(2);
        let holder = seen.holder.as_ref().expect("a reader");
        let id = id_of(holder).expect("of leasehold");
        let (outcome, code, text) = says(&id[..8], &seen);
        assert_eq!((outcome, code), ("refused", USAGE));
        assert!(text.contains("2 holders of \"x\" have an id"), "{text}");
        assert!(text.contains("type more digits"), "{text}");
        let (outcome, code, text) = says("ffffffff", &seen);
        assert_eq!((outcome, code), ("held", BUSY));
        assert!(text.contains("begins with ffffffff: nothing was broken"));
        let next = format!("leasehold break --holder {id} x\n");
        assert!(text.contains(&next), "{text}");
        // One that is alone has a fence for it.
        let (.., text) = says("ffffffff", &held(41));
        assert!(
            text.ends_with("next    leasehold break --if-fence 41 x"),
            "{text}"
        );
    }
}

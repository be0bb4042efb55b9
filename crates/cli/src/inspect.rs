//! `leasehold inspect`: shows holders, waiters and leases. Reads only, and never scans the store. The text is of one lock with
//! all that an operator needs to decide about `break`, or a table with one line for each lock. Numbers are never cut.

use std::fmt::Write as _;
use std::io;

use clap::Args;
use leasehold::{
    Client, Fence, ForeignFormat, HolderIdentity, HolderView, InspectedNodes, NodeView, Snapshot,
    WaiterView,
};
use leasehold_core::LockName;
use leasehold_serve::documents::{InspectEntry, InspectReport};
use leasehold_serve::look::{InspectedLock, is_denied, known_locks, look};

use crate::exit::Exit;
use crate::look::hidden_names;
use crate::messages::{fit, pasteable, place, quoted, say, span};
use crate::session::{Target, with_client_until_signal};
use crate::store::StoreArgs;
use crate::view::{
    fence_of, foreign, holders, id_of, is_alive, is_cache_entry, lease_of, phase, several, state,
    who,
};
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
Of a quorum, the details have the votes for the holder, and each node that sees something else. With
--json, the locks that are named have the views of all nodes, also without a majority (69).

Without a name, reads an index; the store is never scanned. On Redis a lock enters the index when its
lease is first renewed (after a third of its TTL) or when a client waits for it, so locks held for a
moment cost nothing more. A lock taken just now, or a foreign lock that no Leasehold client waits for,
is missing from the list: give its name.

The program of a foreign lock is guessed from its format. The value of the lock is not shown.
  leasehold inspect db-migrate
  leasehold inspect --json | jq '.locks[].name'

Exit codes: 0 shown; 64 wrong usage or an invalid name; 69 the store does not answer; 77 it refuses
user, password or permission; 78 no store, or a key beside the lock has another type";

/// Runs the verb.
pub(crate) fn inspect(args: &Inspect) -> Result<Exit, Exit> {
    for name in &args.names {
        LockName::new(name)?;
    }
    let mut target = args.store.target()?;
    if args.has_views() {
        target.builder = target.builder.quorum_may_be_down();
    }
    with_client_until_signal(&target, async |client| show(client, &target, args).await)
}

impl Inspect {
    /// Whether the document has the views of the nodes of a quorum also without a verdict.
    fn has_views(&self) -> bool {
        self.json && !self.names.is_empty()
    }
}

async fn show(client: &Client, target: &Target, args: &Inspect) -> Result<Exit, Exit> {
    if !args.json && client.store().starts_with("local:") {
        say(&format!("{}: this host only", client.store()));
    }
    let (mut found, hidden) = if args.names.is_empty() {
        let known = known_locks(client).await?;
        (known.found, known.hidden)
    } else {
        let found = look(client, &args.names, args.has_views()).await?;
        let is_hidden = |found: &InspectedLock| {
            let has_views = args.has_views() && found.nodes.is_some();
            !has_views && matches!(&found.outcome, Err(error) if is_denied(error))
        };
        if let (true, Some(Err(error))) = (
            found.iter().all(is_hidden),
            found.first().map(|found| &found.outcome),
        ) {
            // It may be the user that is refused, and not a lock.
            return Err(error.clone().into());
        }
        (found, 0)
    };
    // A single lock has a page with all details.
    if let ([one], [name], false) = (found.as_slice(), args.names.as_slice(), args.json)
        && let Ok(snapshot) = &one.outcome
    {
        let pasted = args.store.again_with(name);
        let page = detail(name, &pasted, snapshot, one.nodes.as_ref());
        output::print(&page)?;
        return Ok(Exit::quiet(0));
    }
    let omitted = found.len().saturating_sub(args.limit.unwrap_or(usize::MAX));
    found.truncate(found.len() - omitted);
    print(client, args, &found, omitted, hidden)?;
    match found.into_iter().find_map(|found| found.outcome.err()) {
        None => Ok(Exit::quiet(0)),
        // It may be that of the connection, which was made without a majority.
        Some(error) if args.has_views() => Err(target.explained(error)),
        Some(error) => Err(error.into()),
    }
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
    let rows: Vec<Row> = rows
        .map(|found| row(&found.name, found.outcome.as_ref().ok()))
        .collect();
    output::print(&table(&rows, sys::columns(io::stdout())))?;
    if omitted > 0 {
        say(&format!("{omitted} more are not shown (--limit)"));
    }
    Ok(())
}

/// The text. `pasted` is the lock with its store options, for a command. `nodes` are the nodes of a quorum.
fn detail(name: &str, pasted: &str, snapshot: &Snapshot, nodes: Option<&InspectedNodes>) -> String {
    let several = several(snapshot).map(|several| format!(" by {several}"));
    let several = several.unwrap_or_default();
    let mut text = format!("{} is {}{several}\n", quoted(name), state(snapshot));
    let mut row = |what: &str, said: String| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "    {what:<7} {said}");
    };
    let is_alone = holders(snapshot) == 1;
    let id = |holder| match id_of(holder).filter(|_| !is_alone) {
        Some(id) => format!(", id {id}"),
        None => String::new(),
    };
    if let Some(holder) = &snapshot.holder {
        row("holder", slot_of(holder) + &described(holder) + &id(holder));
        if let Some(fence) = holder.fence {
            row("fence", fence.to_string());
        }
        if let Some(held) = holder.held_for {
            row("held", span(held));
        }
        let endless = "NEVER ENDS: the program that set this key must delete it";
        row("lease", lease_of(holder, endless));
        for other in &snapshot.others {
            let lease = lease_of(other, endless);
            row(
                "",
                format!(
                    "{}{}{}{}, {lease}",
                    slot_of(other),
                    who(other),
                    id(other),
                    fence_of(other)
                ),
            );
        }
        if snapshot.omitted > 0 {
            row("", format!("and {} more", snapshot.omitted));
        }
    }
    if let Some(nodes) = nodes {
        if let Some(votes) = votes(nodes) {
            row("votes", votes);
        }
        for (at, line) in differing(nodes).into_iter().enumerate() {
            row(if at == 0 { "nodes" } else { "" }, line);
        }
    }
    if snapshot.holder.is_some() || !snapshot.queue.is_empty() {
        row("queue", format!("{} waiting", snapshot.queue.len()));
    }
    for (ahead, waiter) in (0..).zip(&snapshot.queue) {
        row("", waiting(ahead, waiter));
    }
    let Some(holder) = &snapshot.holder else {
        return text;
    };
    if let Some(fence) = holder.fence {
        let all = phase(snapshot).map(|readers| format!("  (ends all {readers})"));
        let all = all.unwrap_or_default();
        row(
            "break",
            format!("leasehold break --if-fence {fence} {pasted}{all}"),
        );
    }
    if let Some(id) = id_of(holder).filter(|_| phase(snapshot).is_some() || holder.fence.is_none())
    {
        let what = if holder.fence.is_some() { "" } else { "break" };
        row(
            what,
            format!("leasehold break --holder {id} {pasted}  (ends this one)"),
        );
    }
    text
}

/// `slot 2: `, or nothing for a holder without a slot.
fn slot_of(holder: &HolderView) -> String {
    let slot = holder.slot.map(|slot| format!("slot {slot}: "));
    slot.unwrap_or_default()
}

fn described(holder: &HolderView) -> String {
    match &holder.who {
        HolderIdentity::Foreign { kind, value } if !is_cache_entry(kind, value) => {
            format!("a foreign lock: {}", foreign(kind, value))
        }
        _ => who(holder),
    }
}

/// The votes for the holder, for people: `2 of 3`; `None` if the lock is free.
fn votes(inspected: &InspectedNodes) -> Option<String> {
    let holder = inspected.lock.as_ref().ok()?.holder.as_ref();
    holder.map(|_| format!("{} of {}", inspected.votes(), inspected.nodes.len()))
}

/// One line for each node that sees another holder or another fence than the verdict, or that did not answer.
fn differing(inspected: &InspectedNodes) -> Vec<String> {
    let verdict = inspected.lock.as_ref().ok().and_then(named);
    let line = |view: &NodeView| match &view.seen {
        Ok(seen) if named(seen) == verdict => None,
        Ok(seen) => {
            let shown = |holder| described(holder) + &fence_of(holder);
            let said = seen.holder.as_ref().map_or_else(|| "free".into(), shown);
            Some(format!("{}: {said}", view.node))
        }
        // Errors begin with the address.
        Err(error) => Some(error.to_string()),
    };
    inspected.nodes.iter().filter_map(line).collect()
}

/// The part of a holder in which all nodes of a certificate agree.
fn named(seen: &Snapshot) -> Option<(&HolderIdentity, Option<Fence>)> {
    let holder = seen.holder.as_ref()?;
    Some((&holder.who, holder.fence))
}

fn waiting(ahead: u32, waiter: &WaiterView) -> String {
    let life = if is_alive(waiter) {
        format!("alive, or passed over in {}", span(waiter.seen_for))
    } else {
        "SILENT: will be passed over".into()
    };
    format!("{}: {}, {life}", place(ahead), waiter.owner)
}

/// The cells of one lock.
type Row = [String; 6];

const HEAD: [&str; 6] = ["NAME", "HOLDER", "HELD", "LEASE", "QUEUE", "FENCE"];

/// The numeric columns, which are right-aligned.
const IS_NUMBER: [bool; 6] = [false, false, true, true, true, true];

/// The columns that shrink on a narrow terminal, and their minimal widths.
const HOLDER: (usize, usize) = (1, 12);
const NAME: (usize, usize) = (0, 12);

const GAP: &str = "  ";

/// The row of a lock; `None` means that its state is unknown.
fn row(name: &str, snapshot: Option<&Snapshot>) -> Row {
    let name = if pasteable(name) == name {
        name.to_owned()
    } else {
        quoted(name)
    };
    let dash = || "-".to_owned();
    let Some(snapshot) = snapshot else {
        return [name, "?".into(), dash(), dash(), dash(), dash()];
    };
    let queue = snapshot.queue.len().to_string();
    let Some(holder) = &snapshot.holder else {
        return [name, "free".into(), dash(), dash(), queue, dash()];
    };
    [
        name,
        several(snapshot).unwrap_or_else(|| in_short(holder)),
        holder.held_for.map_or_else(dash, span),
        holder.expires_in.map_or_else(|| "FOR EVER".into(), span),
        queue,
        holder.fence.map_or_else(dash, |fence| fence.to_string()),
    ]
}

fn in_short(holder: &HolderView) -> String {
    match &holder.who {
        HolderIdentity::Owner(owner) => owner.to_string(),
        HolderIdentity::Foreign { kind, value } if is_cache_entry(kind, value) => {
            "(a cache entry)".into()
        }
        HolderIdentity::Foreign { kind, value } => match ForeignFormat::guess(kind, value) {
            Some(format) => format!("(foreign {kind}: {format}?)"),
            None => format!("(foreign {})", kind.escape_debug()),
        },
    }
}

/// The table, at most `columns` wide.
fn table(rows: &[Row], columns: Option<usize>) -> String {
    let head = HEAD.map(str::to_owned);
    let lines = || std::iter::once(&head).chain(rows);
    let mut widths = [0; 6];
    for row in lines() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    if let Some(columns) = columns {
        let mut too_much = (widths.iter().sum::<usize>() + 5 * GAP.len()).saturating_sub(columns);
        for (at, least) in [HOLDER, NAME] {
            let given = widths[at].saturating_sub(least).min(too_much);
            widths[at] -= given;
            too_much -= given;
        }
    }
    lines()
        .map(|row| fit(line(row, widths).trim_end(), columns) + "\n")
        .collect()
}

fn line(row: &Row, widths: [usize; 6]) -> String {
    let cells = row.iter().zip(widths).zip(IS_NUMBER);
    let cells: Vec<String> = cells
        .map(|((cell, width), is_number)| {
            let cell = fit(cell, Some(width));
            if is_number {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        })
        .collect();
    cells.join(GAP)
}

#[cfg(test)]
mod tests {
    use crate::view::samples::{foreign, free, held, slots, with_queue};

    use super::*;

    #[test]
    fn a_held_lock_shows_who_how_long_who_waits_and_how_to_end_it() {
        assert_eq!(
            detail(
                "db migrate",
                "'db migrate'",
                &with_queue(held(41), &[31, 0]),
                None
            ),
            "\"db migrate\" is held\n    \
             holder  deploy@web-3 (pid 4121: migrate.sh)\n    \
             fence   41\n    \
             held    3m12s\n    \
             lease   24s left, unless renewed\n    \
             queue   2 waiting\n    \
             \x20       1st in line: deploy@web-3 (pid 4121: next), alive, or passed over in 31s\n    \
             \x20       2nd in line: deploy@web-3 (pid 4121: next), SILENT: will be passed over\n    \
             break   leasehold break --if-fence 41 'db migrate'\n"
        );
    }

    #[test]
    fn votes_of_a_quorum_are_counted_and_other_views_listed() {
        let shown = |lock: Snapshot, seen: [Snapshot; 3]| {
            let nodes = ["redis://a", "redis://b", "redis://c"]
                .into_iter()
                .zip(seen);
            let nodes = nodes.map(|(node, seen)| NodeView::new(node, Ok(seen)));
            let nodes = InspectedNodes::new(Ok(lock.clone()), nodes.collect());
            detail("x", "x", &lock, Some(&nodes))
        };
        let all = shown(held(41), [held(41), with_queue(held(41), &[5]), held(41)]);
        assert!(all.contains("votes   3 of 3\n    queue "), "{all}");

        let two = shown(held(41), [held(41), free(), held(41)]);
        let listed = "votes   2 of 3\n    nodes   redis://b: free\n    queue ";
        assert!(two.contains(listed), "{two}");

        // Another owner, which has another fence.
        let one = shown(free(), [held(42), free(), foreign("hash", b"")]);
        assert_eq!(
            one,
            "\"x\" is free\n    \
             nodes   redis://a: deploy@web-3 (pid 4121: migrate.sh), fence 42\n    \
             \x20       redis://c: a foreign lock: hash, looks like Redisson's (a hash)\n"
        );
        assert_eq!(shown(free(), [free(), free(), free()]), "\"x\" is free\n");
    }

    #[test]
    fn each_holder_of_a_semaphore_has_a_line() {
        assert_eq!(
            detail("gpu", "gpu", &slots(&[3, 1]), None),
            "\"gpu\" is held by 2 of 4 slots\n    \
             holder  slot 3: deploy@web-3 (pid 4121: migrate.sh), id 000000000000\n    \
             fence   43\n    \
             held    3m12s\n    \
             lease   24s left, unless renewed\n    \
             \x20       slot 1: deploy@web-3 (pid 4121: migrate.sh), id 000000000000, fence 41, 24s left, unless renewed\n    \
             queue   0 waiting\n    \
             break   leasehold break --if-fence 43 gpu\n"
        );
        let [_, holder, ..] = row("gpu", Some(&slots(&[3, 1])));
        assert_eq!(holder, "2 of 4 slots");
    }

    #[test]
    fn a_free_lock_shows_who_gets_it_next() {
        assert_eq!(detail("x", "x", &free(), None), "\"x\" is free\n");
        assert!(detail("x", "x", &with_queue(free(), &[3]), None).contains("queue   1 waiting\n"));
    }

    #[test]
    fn foreign_lock_shows_its_likely_format_and_no_break_command() {
        assert_eq!(
            detail("a\u{1b}b", "", &foreign("hash", b""), None),
            "\"a\\u{1b}b\" is held\n    \
             holder  a foreign lock: hash, looks like Redisson's (a hash)\n    \
             lease   NEVER ENDS: the program that set this key must delete it\n    \
             queue   0 waiting\n"
        );
    }

    fn rows() -> Vec<Row> {
        vec![
            row("old-job", Some(&foreign("hash", b""))),
            row("db-migrate", Some(&with_queue(held(41), &[5, 5]))),
            row("a\u{1b}[2J b", Some(&free())),
            row("odd", None),
        ]
    }

    #[test]
    fn a_table_is_as_wide_as_it_needs_to_be() {
        assert_eq!(
            table(&rows(), None),
            "NAME            HOLDER                                HELD     LEASE  QUEUE  FENCE\n\
             old-job         (foreign hash: Redisson?)                -  FOR EVER      0      -\n\
             db-migrate      deploy@web-3 (pid 4121: migrate.sh)  3m12s       24s      2     41\n\
             \"a\\u{1b}[2J b\"  free                                     -         -      0      -\n\
             odd             ?                                        -         -      -      -\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_holders_and_then_names() {
        for columns in [20, 40, 60, 80] {
            let table = super::table(&rows(), Some(columns));
            assert!(
                table.lines().all(|line| line.chars().count() <= columns),
                "{table}"
            );
        }
        let table = super::table(&rows(), Some(60));
        assert!(
            table.contains("db-migrate      deploy@web-3…  3m12s       24s      2     41\n"),
            "{table}"
        );
    }
}

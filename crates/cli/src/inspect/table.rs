//! The table of `inspect`: one line for each lock. Pure. Numbers are never cut.

use leasehold::{ForeignFormat, HolderIdentity, HolderView, Snapshot};

use crate::messages::{fit, pasteable, quoted, span};
use crate::view::is_cache_entry;

/// The cells of one lock.
pub(crate) type Row = [String; 6];

const HEAD: [&str; 6] = ["NAME", "HOLDER", "HELD", "LEASE", "QUEUE", "FENCE"];

/// The numeric columns, which are right-aligned.
const IS_NUMBER: [bool; 6] = [false, false, true, true, true, true];

/// The columns that shrink on a narrow terminal, and their minimal widths.
const HOLDER: (usize, usize) = (1, 12);
const NAME: (usize, usize) = (0, 12);

const GAP: &str = "  ";

/// The row of a lock; `None` means that its state is unknown.
pub(crate) fn row(name: &str, snapshot: Option<&Snapshot>) -> Row {
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
        in_short(holder),
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
pub(crate) fn of(rows: &[Row], columns: Option<usize>) -> String {
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
    use crate::view::samples::{foreign, free, held, with_queue};

    use super::*;

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
            of(&rows(), None),
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
            let table = of(&rows(), Some(columns));
            assert!(
                table.lines().all(|line| line.chars().count() <= columns),
                "{table}"
            );
        }
        let table = of(&rows(), Some(60));
        assert!(
            table.contains("db-migrate      deploy@web-3…  3m12s       24s      2     41\n"),
            "{table}"
        );
    }
}

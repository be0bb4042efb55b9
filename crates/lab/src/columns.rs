//! Rows of text under each other. Must never cut or round what it is given.

use std::fmt::Write as _;

/// Columns that begin where the longest cell before them allows.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let cells = widths.iter().zip(row);
        let line: Vec<String> = cells
            .map(|(width, cell)| format!("{cell:<width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A table in Markdown with its head in the first row, which is also readable in a terminal.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a String cannot fail, here and below.
            let _infallible = write!(text, "| {cell:>width$} ");
        }
        text.push_str("|\n");
        if at == 0 {
            for width in &widths {
                let _infallible = write!(text, "|{}:", "-".repeat(width + 1));
            }
            text.push_str("|\n");
        }
    }
    text
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max()
    };
    (0..columns)
        .map(|at| width(at).unwrap_or_default())
        .collect()
}

//! Text for a terminal: columns, wrapped lines, numbers. Text is wrapped, never cut.

use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

/// The page width, in columns.
pub(crate) const WIDTH: usize = 100;

const GAP: &str = "  ";

/// The words of `text` in lines of at most `width` columns. A longer word gets a separate line; a line feed is kept.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for part in text.split('\n') {
        let mut line = String::new();
        for word in part.split(' ') {
            if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

/// `text` as a paragraph, each line behind `indent`.
pub(crate) fn paragraph(text: &str, indent: &str) -> String {
    let lines = wrap(text, WIDTH - columns(indent));
    let mut paragraph = String::new();
    for line in lines {
        paragraph.extend([indent, &line, "\n"]);
    }
    paragraph
}

/// `text` as a paragraph, its first line behind `label`, and the others indented as far.
pub(crate) fn paragraph_after(label: &str, text: &str) -> String {
    let indent = " ".repeat(columns(label));
    paragraph(text, &indent).replacen(&indent, label, 1)
}

/// How many columns a text takes. Each character counts as one: the lab prints no wide ones.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Formats rows of cells as lines of a table. The columns in `right` are right-aligned; those in `wrapped` have a maximal width,
/// and wrap.
pub(crate) fn grid(
    rows: &[Vec<String>],
    right: &[usize],
    wrapped: &[(usize, usize)],
) -> Vec<Vec<String>> {
    let cells: Vec<Vec<Vec<String>>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .enumerate()
                .map(|(at, cell)| lines(at, cell, wrapped))
                .collect()
        })
        .collect();
    let widths: Vec<usize> = (0..cells.iter().map(Vec::len).max().unwrap_or(0))
        .map(|at| {
            let column = cells.iter().filter_map(|row| row.get(at)).flatten();
            column.map(|line| columns(line)).max().unwrap_or(0)
        })
        .collect();
    cells
        .iter()
        .map(|row| row_lines(row, &widths, right))
        .collect()
}

/// The natural widths of the columns of `rows`.
pub(crate) fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells
            .flat_map(|cell| cell.split('\n'))
            .map(columns)
            .max()
            .unwrap_or(0)
    };
    (0..count).map(widest).collect()
}

/// The width of the gaps between so many columns.
pub(crate) fn gaps(count: usize) -> usize {
    GAP.len() * count.saturating_sub(1)
}

fn lines(at: usize, cell: &str, wrapped: &[(usize, usize)]) -> Vec<String> {
    match wrapped.iter().find(|(column, _)| *column == at) {
        Some((_, width)) => wrap(cell, *width),
        None => cell.split('\n').map(str::to_owned).collect(),
    }
}

fn row_lines(row: &[Vec<String>], widths: &[usize], right: &[usize]) -> Vec<String> {
    let high = row.iter().map(Vec::len).max().unwrap_or(0);
    let line = |nth: usize| {
        let cells = row
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(at, (cell, width))| {
                let text = cell.get(nth).map_or("", String::as_str);
                if right.contains(&at) {
                    format!("{text:>width$}")
                } else {
                    format!("{text:<width$}")
                }
            });
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    (0..high).map(line).collect()
}

/// `1,234,567`
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0.02 s`, `12.3 s`
pub(crate) fn took(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{seconds:.1} s")
    }
}

/// `1 step`, `2 steps`
pub(crate) fn counted(number: usize, noun: &str) -> String {
    counted_as(number, noun, &format!("{noun}s"))
}

/// `1 property`, `2 properties`
pub(crate) fn counted_as(number: usize, one: &str, more: &str) -> String {
    let noun = if number == 1 { one } else { more };
    format!("{} {noun}", thousands(number))
}

/// A document on one line that begins with its schema. All keys are texts, so serialization cannot fail.
pub(crate) fn json_line(schema: &'static str, fields: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Document<'a, T> {
        schema: &'static str,
        #[serde(flatten)]
        fields: &'a T,
    }
    serde_json::to_string(&Document { schema, fields }).unwrap_or_default() + "\n"
}

/// The colours of a page. The words carry the same information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A heading.
    Strong,
    /// A violation.
    Wrong,
    /// No violation.
    Good,
}

impl Paint {
    /// `text` in this colour, or unchanged without `colour`.
    pub(crate) fn on(self, text: &str, colour: bool) -> String {
        if !colour {
            return text.to_owned();
        }
        let style = match self {
            Self::Strong => Style::new().bold(),
            Self::Wrong => AnsiColor::Red.on_default().bold(),
            Self::Good => AnsiColor::Green.on_default(),
        };
        format!("{style}{text}{style:#}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_line_feeds_stay() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("far-too-long a\nb", 4), ["far-too-long", "a", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn cells_stand_under_each_other() {
        let rows = [
            vec!["1".into(), "a\nb".into(), "x y".into()],
            vec!["10".into(), String::new(), "z".into()],
        ];
        let lines = grid(&rows, &[0], &[(2, 1)]);
        assert_eq!(lines, [[" 1  a  x", "    b  y"].as_slice(), &["10     z"]]);
        assert_eq!(widths(&rows), [2, 1, 3]);
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            (counted(1, "state"), counted(1_000, "state")),
            ("1 state".into(), "1,000 states".into())
        );
        assert_eq!(
            (
                took(Duration::from_millis(20)),
                took(Duration::from_secs(12))
            ),
            ("0.02 s".into(), "12.0 s".into())
        );
    }
}

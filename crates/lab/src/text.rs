//! Text for a terminal: columns, wrapped lines, numbers. Text is wrapped, never cut.

use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

/// The page width, in columns.
pub(crate) const WIDTH: usize = 100;

const GAP: &str = "  ";
/// The width that a flexible column leaves to each later one, if that needs it.
const KEPT: usize = 12;

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

/// Formats rows of cells as lines of a table. The columns in `right` are right-aligned. Those in `flexible` are wrapped to fit the
/// page, in this order, but not below their least width.
pub(crate) fn grid(
    rows: &[Vec<String>],
    right: &[usize],
    flexible: &[(usize, usize)],
) -> Vec<Vec<String>> {
    let lines = |cell: &String| cell.split('\n').map(str::to_owned).collect();
    let cells = rows.iter().map(|row| row.iter().map(lines).collect());
    let mut cells: Vec<Vec<Vec<String>>> = cells.collect();
    let mut widths = widths(&cells);
    let is_fixed = |at: &usize| flexible.iter().all(|(column, _)| column != at);
    let fixed = (0..widths.len()).filter(is_fixed).map(|at| widths[at]);
    let taken = fixed.sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
    let mut room = WIDTH.saturating_sub(taken);
    for (nth, &(at, least)) in flexible.iter().enumerate() {
        let later = flexible[nth + 1..].iter();
        let later: usize = later.map(|(at, _)| widths[*at].min(KEPT)).sum();
        widths[at] = widths[at].min(room.saturating_sub(later).max(least));
        room = room.saturating_sub(widths[at]);
        for cell in cells.iter_mut().filter_map(|row| row.get_mut(at)) {
            *cell = wrap(&cell.join("\n"), widths[at]);
        }
    }
    let widths = self::widths(&cells);
    let formatted = cells.iter().map(|row| row_lines(row, &widths, right));
    formatted.collect()
}

/// The widths of columns of cells, each with its lines.
fn widths(cells: &[Vec<Vec<String>>]) -> Vec<usize> {
    let count = cells.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |at: usize| {
        let column = cells.iter().filter_map(|row| row.get(at)).flatten();
        column.map(|line| columns(line)).max().unwrap_or(0)
    };
    (0..count).map(widest).collect()
}

fn row_lines(row: &[Vec<String>], widths: &[usize], right: &[usize]) -> Vec<String> {
    let high = row.iter().map(Vec::len).max().unwrap_or(0);
    let line = |nth: usize| {
        let cell = |(at, (cell, width)): (usize, (&Vec<String>, &usize))| {
            let text = cell.get(nth).map_or("", String::as_str);
            if right.contains(&at) {
                format!("{text:>width$}")
            } else {
                format!("{text:<width$}")
            }
        };
        let cells: Vec<_> = row.iter().zip(widths).enumerate().map(cell).collect();
        cells.join(GAP).trim_end().to_owned()
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
    /// `text` as a paragraph, each line in this colour.
    pub(crate) fn paragraph(self, text: &str, colour: bool) -> String {
        let paragraph = paragraph(text, "");
        let lines = paragraph.lines();
        lines.map(|line| self.on(line, colour) + "\n").collect()
    }

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
        let lines = grid(&rows, &[0], &[]);
        assert_eq!(lines, [[" 1  a  x y", "    b"].as_slice(), &["10     z"]]);
    }

    /// The first flexible column leaves something to the second one.
    #[test]
    fn a_table_is_as_wide_as_the_page() {
        let long = "word ".repeat(30).trim_end().to_owned();
        let rows = [vec!["    indented".into(), long.clone(), long]];
        let lines = grid(&rows, &[], &[(1, 0), (2, 0)]).concat();
        let widest = lines.iter().map(|line| columns(line)).max();
        assert!(widest.is_some_and(|widest| (90..=WIDTH).contains(&widest)));
        assert!(
            lines[0].starts_with("    indented  word word"),
            "{lines:#?}"
        );
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

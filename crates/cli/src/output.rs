//! Writing results to stdout, as text or JSON. All other output goes to stderr ([`crate::messages`]).

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::exit::Exit;
use crate::session::refused_by_system;
use crate::sys;

/// Writes and flushes `bytes`.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes and flushes `text`. A closed pipe, as in `leasehold inspect | head -1`, ends the process silently with
/// 0.
pub(crate) fn print(text: &str) -> Result<(), Exit> {
    write(text.as_bytes()).or_else(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> Result<(), Exit> {
    Err(match error.kind() {
        ErrorKind::BrokenPipe => Exit::quiet(0),
        _ => refused_by_system(error),
    })
}

/// Prints bytes on a separate thread, since a slow reader must not delay the handling of signals.
#[cfg(feature = "cache")]
pub(crate) async fn print_on_thread(bytes: Vec<u8>) -> Result<(), Exit> {
    let written = tokio::task::spawn_blocking(move || write(&bytes)).await;
    written
        .map_err(io::Error::other)
        .and_then(|written| written)
        .or_else(|error| unwritten(&error))
}

/// Writes one JSON document, on one line.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Exit> {
    let line = json(document).map_err(|error| refused_by_system(&io::Error::other(error)))?;
    print(&(line + "\n"))
}

/// A JSON document on one line. Characters that control a terminal or change the text direction are escaped,
/// since people read JSON too.
pub(crate) fn json(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(document).map(|text| escape_unsafe(&text))
}

/// A JSON document on several lines, for people.
pub(crate) fn json_for_people(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(document).map(|text| escape_unsafe(&text))
}

/// Escapes control characters. They can only occur in strings, where an escape has the same meaning.
fn escape_unsafe(json: &str) -> String {
    json.chars().fold(String::new(), |mut escaped, c| {
        if steers(c) {
            // Writing to a string cannot fail.
            let _written: fmt::Result = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
        escaped
    })
}

/// True for DEL, C1 controls, line separators and text direction marks.
const fn steers(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

/// Prints JSON for a verb whose exit code is its answer. A closed pipe is not an error here.
pub(crate) fn print_json_answer(document: &impl Serialize) -> Result<(), Exit> {
    match print_json(document) {
        Err(unread) if unread.code() == 0 => Ok(()),
        other => other,
    }
}

/// The width of the terminal on stdout; `None` if stdout is not a terminal.
pub(crate) fn columns() -> Option<usize> {
    let stdout = io::stdout();
    stdout
        .is_terminal()
        .then(|| sys::columns(&stdout))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_nothing_that_steers_a_terminal() {
        let text = "\u{1b}[31m\u{7f}\u{9b}31m\u{202e}\u{2069}\u{feff}é\u{1f600}";
        let line = json(&text).unwrap();
        assert_eq!(
            line,
            "\"\\u001b[31m\\u007f\\u009b31m\\u202e\\u2069\\ufeffé\u{1f600}\""
        );
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}

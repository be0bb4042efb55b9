//! Writing results to stdout, as text or JSON. All other output goes to stderr ([`crate::messages`]).

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};
use std::thread;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::exit::Exit;

/// Writes and flushes `bytes`.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes and flushes `text`. A closed pipe, as in `leasehold inspect | head -1`, ends the process silently with
/// 0.
pub(crate) fn print(text: &str) -> Result<(), Exit> {
    write(text.as_bytes()).or_else(unwritten)
}

fn unwritten(error: io::Error) -> Result<(), Exit> {
    Err(match error.kind() {
        ErrorKind::BrokenPipe => Exit::quiet(0),
        _ => error.into(),
    })
}

/// Writes bytes on a separate thread: the pipe may be full, and a slow reader must not delay the handling of signals.
pub(crate) async fn write_on_thread(bytes: Vec<u8>) -> io::Result<()> {
    let (tell, told) = oneshot::channel();
    // After a signal the receiver is gone.
    let task = move || drop(tell.send(write(&bytes)));
    thread::Builder::new().name("stdout".into()).spawn(task)?;
    told.await
        .unwrap_or_else(|_| Err(io::Error::other("not written")))
}

/// Prints bytes, in the form of [`print`], on a separate thread.
#[cfg(feature = "cache")]
pub(crate) async fn print_on_thread(bytes: Vec<u8>) -> Result<Exit, Exit> {
    let written = write_on_thread(bytes).await.or_else(unwritten);
    written.map(|()| Exit::quiet(0))
}

/// Writes one JSON document, on one line.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Exit> {
    print(&json(document))
}

/// A JSON document on one line, with the end of the line. Characters that control a terminal or change the text
/// direction are escaped, since people read JSON too.
pub(crate) fn json(document: &impl Serialize) -> String {
    // Strings and numbers can always be serialized.
    escape_unsafe(&serde_json::to_string(document).unwrap_or_default()) + "\n"
}

/// A JSON document on several lines, for people.
pub(crate) fn json_for_people(document: &impl Serialize) -> String {
    escape_unsafe(&serde_json::to_string_pretty(document).unwrap_or_default()) + "\n"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_nothing_that_steers_a_terminal() {
        let text = "\u{1b}[31m\u{7f}\u{9b}31m\u{202e}\u{2069}\u{feff}é\u{1f600}";
        let line = json(&text);
        assert_eq!(
            line,
            "\"\\u001b[31m\\u007f\\u009b31m\\u202e\\u2069\\ufeffé\u{1f600}\"\n"
        );
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}

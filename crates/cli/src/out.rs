//! What was asked for, on stdout. Must never hold anything else: whatever else we say is for stderr ([`crate::text`]).

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::exit::Exit;
use crate::session::refused_by_system;
use crate::sys;

/// Writes `bytes` at once.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes `text` at once. The error is how the process ends: with 0, in silence, if nobody reads any more, as in
/// `leasehold inspect | head -1`.
pub(crate) fn print(text: &str) -> Result<(), Exit> {
    write(text.as_bytes()).or_else(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> Result<(), Exit> {
    Err(match error.kind() {
        ErrorKind::BrokenPipe => Exit::quiet(0),
        _ => refused_by_system(error),
    })
}

/// The same for bytes that whoever reads may take slowly: not on this thread, which has signals to hear.
#[cfg(feature = "cache")]
pub(crate) async fn print_aside(bytes: Vec<u8>) -> Result<(), Exit> {
    let written = tokio::task::spawn_blocking(move || write(&bytes)).await;
    written
        .map_err(io::Error::other)
        .and_then(|written| written)
        .or_else(|error| unwritten(&error))
}

/// Writes one JSON document, on one line.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Exit> {
    let line = serde_json::to_string(document)
        .map_err(|error| refused_by_system(&io::Error::other(error)))?;
    print(&(line + "\n"))
}

/// The same for a verb whose exit code is its answer, to whoever does not read the document as well.
pub(crate) fn tell_json(document: &impl Serialize) -> Result<(), Exit> {
    match print_json(document) {
        Err(unread) if unread.code() == 0 => Ok(()),
        other => other,
    }
}

/// How many columns there are for a table; `None` where no line is too long.
pub(crate) fn columns() -> Option<usize> {
    let stdout = io::stdout();
    stdout
        .is_terminal()
        .then(|| sys::columns(&stdout))
        .flatten()
}

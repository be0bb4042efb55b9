//! Writing results to stdout, as text or JSON. All other output goes to stderr ([`crate::messages`]).

use std::io::{self, ErrorKind, Write};
use std::thread;

use leasehold_serve::documents::escape_unsafe;
pub(crate) use leasehold_serve::documents::json;
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

/// A JSON document on several lines, for people.
pub(crate) fn json_for_people(document: &impl Serialize) -> String {
    escape_unsafe(&serde_json::to_string_pretty(document).unwrap_or_default()) + "\n"
}

/// Prints JSON for a verb whose exit code is its answer. A closed pipe is not an error here.
pub(crate) fn print_json_answer(document: &impl Serialize) -> Result<(), Exit> {
    match print_json(document) {
        Err(unread) if unread.code() == 0 => Ok(()),
        other => other,
    }
}

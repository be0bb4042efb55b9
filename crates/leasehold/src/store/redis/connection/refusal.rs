//! The errors of a failed attempt to connect: the server's own words if there are any, else a hint.
//!
//! No request was sent, so none of them says that a step may have taken effect.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::RedisError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::fault::classify;

/// Why an attempt to connect failed. No step was sent, so none can have taken effect.
pub(in crate::store::redis) fn refusal(address: &Address, error: &RedisError) -> StoreError {
    let (mut refusal, _) = classify(&address.to_string(), error);
    if refusal.kind == StoreErrorKind::TimedOut {
        return silent(address, None);
    }
    let is_closed = error.is_connection_dropped() && !error.is_connection_refusal();
    if is_closed && refusal.kind == StoreErrorKind::Unreachable {
        refusal.detail += WRONG_DOOR;
    }
    refusal.may_have_taken_effect = false;
    refusal
}

const WRONG_DOOR: &str = "; is it the right port, and with or without TLS?";

pub(in crate::store::redis) fn closed(address: &Address) -> StoreError {
    let detail = format!("it closed the connection{WRONG_DOOR}");
    StoreError::new(address.to_string(), StoreErrorKind::Unreachable, detail)
}

/// The server did not answer an attempt to connect in time.
pub(in crate::store::redis) fn silent(address: &Address, limit: Option<Duration>) -> StoreError {
    let waited = limit.map_or_else(String::new, |limit| format!(" for {limit:.1?}"));
    let detail = format!(
        "it did not answer{waited}; is it the right host and port, and with or without TLS?"
    );
    StoreError::new(address.to_string(), StoreErrorKind::TimedOut, detail)
}

/// A stream that carries bytes both ways.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// The line of a server that takes no more clients, or none from other hosts: it sends an error first of all and closes, without waiting for
/// a request. redis-rs drops a line that answers no request.
#[derive(Default)]
pub(super) struct LastWords(Arc<Heard>);

/// The first bytes of a handshake.
#[derive(Default)]
struct Heard {
    is_over: AtomicBool,
    bytes: Mutex<Vec<u8>>,
}

/// More bytes than an error line has.
const LINE: usize = 4096;

impl LastWords {
    /// Listens to a stream.
    pub(super) fn of(&self, stream: Box<dyn Duplex>) -> Box<dyn Duplex> {
        let heard = self.0.clone();
        Box::new(Overheard { stream, heard })
    }

    /// The handshake has succeeded.
    pub(super) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        *self.0.lock() = Vec::new();
    }

    /// An error that says why the server closed the connection, if the server said so.
    pub(super) fn explain(&self, error: StoreError) -> StoreError {
        if error.kind != StoreErrorKind::Unreachable {
            return error;
        }
        let heard = self.0.lock();
        let line = first_line(&heard)
            .and_then(|line| redis::parse_redis_value(line).ok()?.extract_error().err());
        let Some(said) = line.map(|said| classify(&error.store, &said).0) else {
            return error;
        };
        let detail = format!("it closed the connection, and said: {}", said.detail);
        // Words that are not known may be about an outage that passes.
        let kind = match said.kind {
            StoreErrorKind::Protocol => error.kind,
            kind => kind,
        };
        StoreError::new(error.store, kind, detail)
    }
}

impl Heard {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, said: &[u8]) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let mut bytes = self.lock();
        let room = LINE - bytes.len();
        bytes.extend_from_slice(&said[..said.len().min(room)]);
    }
}

/// The error line at the begin of some bytes, with its line end.
fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|end| end == b"\r\n")?;
    bytes.starts_with(b"-").then(|| &bytes[..end + 2])
}

/// A stream whose incoming bytes are heard.
struct Overheard {
    stream: Box<dyn Duplex>,
    heard: Arc<Heard>,
}

impl AsyncRead for Overheard {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        this.heard.hear(&into.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

/// To a side that has closed, nothing can be written, and no error says so: reading goes on instead. It first gets what that side said before (an
/// error line, or an alert of TLS), and then the end.
impl AsyncWrite for Overheard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(written.or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
                Ok(bytes.len())
            }
            _ => Err(error),
        }))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

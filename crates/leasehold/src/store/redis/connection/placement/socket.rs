//! The socket of a connection. The polling thread reads and writes it directly and does not wake the client thread.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker, ready};

use socket2::SockRef;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::task::coop::poll_proceed;

use super::signals::{PollSignals, SocketWaker};

/// The most bytes of one read.
const CHUNK: usize = 16 * 1024;

/// A socket that the polling thread reads and writes directly. The reactor of the client thread listens to it when no
/// thread spins.
pub(in crate::store::redis::connection) struct Socket<S: AsRawFd> {
    connected: Arc<S>,
    chunk: Vec<u8>,
    readiness: Option<AsyncFd<Arc<S>>>,
    /// The reactor also reports when the socket is writable.
    awaits_writable: bool,
    client_thread: Waker,
    signals: Arc<PollSignals>,
}

impl<S: AsRawFd> Socket<S> {
    pub(super) fn new(connected: S, signals: Arc<PollSignals>) -> Self {
        Self {
            connected: Arc::new(connected),
            chunk: vec![0; CHUNK],
            readiness: None,
            awaits_writable: false,
            client_thread: Waker::from(Arc::new(SocketWaker(signals.clone()))),
            signals,
        }
    }

    /// Tries `io` until it succeeds or would block. Also pending if the polling thread will try again by itself.
    fn poll_io<T>(
        &mut self,
        to_write: bool,
        mut io: impl FnMut(&S, &mut [u8]) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let (connected, chunk, signals) = (&*self.connected, &mut self.chunk, &*self.signals);
        let reactor_listens = signals.reactor_listens.load(SeqCst);
        if !reactor_listens {
            // Removed from the reactor, so that the next reply does not wake the client thread.
            self.readiness = None;
        }
        let is_heard = self.readiness.is_some() && (self.awaits_writable || !to_write);
        // One attempt in a poll is enough to know that there is nothing to read.
        if !is_heard && (to_write || !signals.nothing_to_read.load(SeqCst)) {
            match attempt(|| io(connected, chunk)) {
                Some(done) => return Poll::Ready(done),
                None if !to_write => signals.nothing_to_read.store(true, SeqCst),
                None => {}
            }
        }
        if !reactor_listens {
            return Poll::Pending;
        }
        let readiness = match &self.readiness {
            Some(readiness) if is_heard => readiness,
            _ => {
                self.readiness = None;
                self.awaits_writable = to_write;
                let also = if to_write {
                    Interest::WRITABLE
                } else {
                    Interest::READABLE
                };
                let readiness = listen(self.connected.clone(), Interest::READABLE | also)?;
                self.readiness.insert(readiness)
            }
        };
        let mut client_thread = Context::from_waker(&self.client_thread);
        if to_write && readiness.poll_read_ready(&mut client_thread).is_ready() {
            // A pending read may still be registered with the previous reactor entry.
            self.client_thread.wake_by_ref();
        }
        loop {
            let heard = if to_write {
                readiness.poll_write_ready(&mut client_thread)
            } else {
                readiness.poll_read_ready(&mut client_thread)
            };
            let mut heard = ready!(heard)?;
            match attempt(|| io(connected, chunk)) {
                Some(done) => return Poll::Ready(done),
                // Only readiness after this point counts.
                None => heard.clear_ready(),
            }
        }
    }
}

/// The result of `io`; `None` if it would block.
fn attempt<T>(mut io: impl FnMut() -> io::Result<T>) -> Option<io::Result<T>> {
    loop {
        match io() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            done => return Some(done),
        }
    }
}

/// Registers the socket with the current reactor.
#[expect(
    deprecated,
    reason = "only in favour of an unsafe twin; the socket that is shared here stays open, as that one demands"
)]
fn listen<S: AsRawFd>(connected: Arc<S>, interest: Interest) -> io::Result<AsyncFd<Arc<S>>> {
    AsyncFd::with_interest(connected, interest)
}

impl<S> AsyncRead for Socket<S>
where
    S: AsRawFd + AsFd + Unpin,
    for<'a> &'a S: Read,
{
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A server that sends without pause must not occupy the thread.
        let budget = ready!(poll_proceed(context));
        let most = into.remaining().min(CHUNK);
        let read = |mut connected: &S, chunk: &mut [u8]| connected.read(&mut chunk[..most]);
        let count = ready!(this.poll_io(false, read))?;
        into.put_slice(&this.chunk[..count]);
        this.signals.read.store(true, SeqCst);
        budget.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl<S> AsyncWrite for Socket<S>
where
    S: AsRawFd + AsFd + Unpin,
    for<'a> &'a S: Write,
{
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let budget = ready!(poll_proceed(context));
        let write = |mut connected: &S, _: &mut [u8]| connected.write(bytes);
        let count = ready!(this.poll_io(true, write))?;
        this.signals.wrote.store(true, SeqCst);
        budget.made_progress();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.connected).shutdown(Shutdown::Write))
    }
}

//! The socket of a connection. Whoever polls reads and writes it directly; it must never wake home for what the poller sees by itself.

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

use super::calls::{Calls, ForSocket};

/// How much is read at a time.
const CHUNK: usize = 16 * 1024;

/// A socket that whoever polls reads and writes by itself. Home's reactor listens to it when nobody looks.
pub(in crate::store::redis::connection) struct Socket<S: AsRawFd> {
    connected: Arc<S>,
    chunk: Vec<u8>,
    ear: Option<AsyncFd<Arc<S>>>,
    /// The ear also hears when there is room to write.
    hears_room: bool,
    home: Waker,
    calls: Arc<Calls>,
}

impl<S: AsRawFd> Socket<S> {
    pub(super) fn new(connected: S, calls: Arc<Calls>) -> Self {
        Self {
            connected: Arc::new(connected),
            chunk: vec![0; CHUNK],
            ear: None,
            hears_room: false,
            home: Waker::from(Arc::new(ForSocket(calls.clone()))),
            calls,
        }
    }

    /// Tries `io` until it works or has to wait. Pending as well where the poller looks again by itself.
    fn poll_io<T>(
        &mut self,
        room: bool,
        mut io: impl FnMut(&S, &mut [u8]) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let (connected, chunk, calls) = (&*self.connected, &mut self.chunk, &*self.calls);
        let is_listened_to = calls.is_listened_to.load(SeqCst);
        if !is_listened_to {
            // So that home sleeps on when the answer comes.
            self.ear = None;
        }
        let is_heard = self.ear.is_some() && (self.hears_room || !room);
        // Once in a poll is enough to know that there is nothing to read.
        if !is_heard && (room || !calls.is_dry.load(SeqCst)) {
            match attempt(|| io(connected, chunk)) {
                Some(done) => return Poll::Ready(done),
                None if !room => calls.is_dry.store(true, SeqCst),
                None => {}
            }
        }
        if !is_listened_to {
            return Poll::Pending;
        }
        let ear = match &self.ear {
            Some(ear) if is_heard => ear,
            _ => {
                self.ear = None;
                self.hears_room = room;
                let also = if room {
                    Interest::WRITABLE
                } else {
                    Interest::READABLE
                };
                let ear = listen(self.connected.clone(), Interest::READABLE | also)?;
                self.ear.insert(ear)
            }
        };
        let mut home = Context::from_waker(&self.home);
        if room && ear.poll_read_ready(&mut home).is_ready() {
            // Who waits to read may have been waiting for the ear of before.
            self.home.wake_by_ref();
        }
        loop {
            let heard = if room {
                ear.poll_write_ready(&mut home)
            } else {
                ear.poll_read_ready(&mut home)
            };
            let mut heard = ready!(heard)?;
            match attempt(|| io(connected, chunk)) {
                Some(done) => return Poll::Ready(done),
                // What is heard from now on is news.
                None => heard.clear_ready(),
            }
        }
    }
}

/// What `io` gives; `None` if it would have to wait.
fn attempt<T>(mut io: impl FnMut() -> io::Result<T>) -> Option<io::Result<T>> {
    loop {
        match io() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            done => return Some(done),
        }
    }
}

/// Asks the current reactor to listen.
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
        // A server that does not stop talking must not keep the thread.
        let budget = ready!(poll_proceed(context));
        let most = into.remaining().min(CHUNK);
        let read = |mut connected: &S, chunk: &mut [u8]| connected.read(&mut chunk[..most]);
        let count = ready!(this.poll_io(false, read))?;
        into.put_slice(&this.chunk[..count]);
        this.calls.read.store(true, SeqCst);
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
        this.calls.wrote.store(true, SeqCst);
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

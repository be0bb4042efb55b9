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

/// A socket that the polling thread reads and writes directly. A reactor listens to it when no thread spins.
pub(crate) struct Socket<S: AsRawFd> {
    connected: Arc<S>,
    chunk: Vec<u8>,
    listening: Option<Listening<S>>,
    caller: Waker,
    client_thread: Waker,
    signals: Arc<PollSignals>,
}

/// The registration of a socket with a reactor.
struct Listening<S: AsRawFd> {
    readiness: AsyncFd<Arc<S>>,
    /// The reactor is that of the caller's runtime.
    at_caller: bool,
    /// The reactor also reports when the socket is writable.
    to_write: bool,
}

impl<S: AsRawFd> Socket<S> {
    pub(super) fn new(connected: S, signals: Arc<PollSignals>) -> Self {
        Self {
            connected: Arc::new(connected),
            chunk: vec![0; CHUNK],
            listening: None,
            caller: Waker::from(signals.clone()),
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
        let at_caller = signals.listens_at_caller.load(SeqCst);
        // Removed from a reactor that is not the right one now, so that the next reply does not wake its thread. The thread of the
        // caller's runtime is awake while it spins.
        let stays = |listening: &Listening<S>| {
            listening.at_caller == at_caller && (reactor_listens || at_caller)
        };
        self.listening = self.listening.take().filter(stays);
        let is_heard = |listening: &Listening<S>| listening.to_write || !to_write;
        let is_heard = self.listening.as_ref().is_some_and(is_heard);
        // A busy runtime may run many tasks before its reactor reports a reply.
        let may_be_late = at_caller && !to_write;
        // One attempt in a poll is enough to know that there is nothing to read.
        if (!is_heard || may_be_late || !reactor_listens)
            && (to_write || !signals.nothing_to_read.load(SeqCst))
        {
            match attempt(|| io(connected, chunk)) {
                Some(done) => return Poll::Ready(done),
                None if !to_write => signals.nothing_to_read.store(true, SeqCst),
                None => {}
            }
        }
        if !reactor_listens {
            return Poll::Pending;
        }
        let listening = match &self.listening {
            Some(listening) if is_heard => listening,
            _ => {
                self.listening = None;
                let listening = Listening::begin(&self.connected, signals, to_write)?;
                self.listening.insert(listening)
            }
        };
        let waker = if listening.at_caller {
            &self.caller
        } else {
            &self.client_thread
        };
        let (readiness, mut context) = (&listening.readiness, Context::from_waker(waker));
        if to_write && readiness.poll_read_ready(&mut context).is_ready() {
            // A pending read may still be registered with the previous reactor entry.
            waker.wake_by_ref();
        }
        loop {
            let heard = if to_write {
                readiness.poll_write_ready(&mut context)
            } else {
                readiness.poll_read_ready(&mut context)
            };
            let mut heard = match ready!(heard) {
                Ok(heard) => heard,
                Err(_) if listening.at_caller => {
                    // The caller's runtime is shutting down. The client thread goes on.
                    signals.client_thread.raise();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            match attempt(|| io(connected, chunk)) {
                Some(done) => return Poll::Ready(done),
                // Only readiness after this point counts.
                None => heard.clear_ready(),
            }
        }
    }
}

impl<S: AsRawFd> Listening<S> {
    /// Registers a socket with the reactor that has to listen now.
    fn begin(connected: &Arc<S>, signals: &PollSignals, to_write: bool) -> io::Result<Self> {
        let also = if to_write {
            Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        let register = || register(connected.clone(), Interest::READABLE | also);
        let registered = |readiness, at_caller| Self {
            readiness,
            at_caller,
            to_write,
        };
        if signals.listens_at_caller.load(SeqCst)
            && let Some(runtime) = signals.caller_with_reactor()
        {
            let _caller = runtime.enter();
            if let Ok(readiness) = register() {
                return Ok(registered(readiness, true));
            }
            // It is shutting down.
            signals.listens_at_caller.store(false, SeqCst);
        }
        Ok(registered(register()?, false))
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
fn register<S: AsRawFd>(connected: Arc<S>, interest: Interest) -> io::Result<AsyncFd<Arc<S>>> {
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

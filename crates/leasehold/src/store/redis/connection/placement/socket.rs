//! The socket of a connection. The polling thread reads and writes it directly, and one reactor listens to it.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::signals::Signals;
use crate::clock::{Clock, Moment};

/// A socket that the polling thread reads and writes directly.
///
/// A server nearby replies faster than a sleeping thread can be woken. So after a write, the socket demands polls for a short time
/// (*adaptive spin*) before it leaves the reply to the reactor.
pub(crate) struct Socket<S: AsRawFd> {
    connected: Arc<S>,
    listening: Option<Listening<S>>,
    /// Bytes were written, and nothing was read since. A busy runtime may run many tasks before its reactor reports the reply. So each poll
    /// tries to read; later replies wait for the reactor.
    is_reply_due: bool,
    /// `None` if no thread spins.
    spin: Option<AdaptiveSpin>,
    signals: Arc<Signals>,
}

/// The registration of a socket with a reactor.
struct Listening<S: AsRawFd> {
    readiness: AsyncFd<Arc<S>>,
    /// The reactor is that of the caller's runtime.
    at_caller: bool,
    /// The reactor also reports when the socket is writable. A Unix socket is so after each request that the server reads: that would wake
    /// a thread for nothing.
    to_write: bool,
}

impl<S: AsRawFd> Socket<S> {
    pub(super) fn new(connected: S, signals: Arc<Signals>, spins: bool) -> Self {
        Self {
            connected: Arc::new(connected),
            listening: None,
            is_reply_due: false,
            spin: spins.then(|| AdaptiveSpin::new(Clock::system())),
            signals,
        }
    }

    /// Waits for the reactor that has to listen now.
    fn poll_heard(
        &mut self,
        to_write: bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'_, Arc<S>>>> {
        let at_caller = self.signals.listens_at_caller.load(SeqCst);
        let stays = |listening: &Listening<S>| {
            listening.at_caller == at_caller && (listening.to_write || !to_write)
        };
        let listening = if let Some(listening) = self.listening.take().filter(stays) {
            listening
        } else {
            if to_write {
                // A pending read may be registered with the reactor entry that goes.
                context.waker().wake_by_ref();
            }
            Listening::begin(&self.connected, &self.signals, to_write)?
        };
        let Listening {
            readiness,
            at_caller,
            ..
        } = self.listening.insert(listening);
        let heard = if to_write {
            readiness.poll_write_ready(context)
        } else {
            readiness.poll_read_ready(context)
        };
        if *at_caller && matches!(heard, Poll::Ready(Err(_))) {
            // The caller's runtime is shutting down. The client thread goes on.
            self.signals.client_thread.raise();
            return Poll::Pending;
        }
        heard
    }

    /// Bytes were read: a reply need not be awaited any more.
    fn has_read(&mut self) {
        self.is_reply_due = false;
        if let Some(spin) = &mut self.spin {
            spin.answered();
        }
    }
}

impl<S: AsRawFd> Listening<S> {
    /// Registers a socket with the reactor that has to listen now.
    fn begin(connected: &Arc<S>, signals: &Signals, to_write: bool) -> io::Result<Self> {
        let also = if to_write {
            Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        let register = || register(connected.clone(), Interest::READABLE | also);
        if signals.listens_at_caller.load(SeqCst)
            && let Some(runtime) = signals.caller_with_reactor()
        {
            let _caller = runtime.enter();
            if let Ok(readiness) = register() {
                return Ok(Self {
                    readiness,
                    at_caller: true,
                    to_write,
                });
            }
            // It is shutting down.
            signals.listens_at_caller.store(false, SeqCst);
        }
        Ok(Self {
            readiness: register()?,
            at_caller: false,
            to_write,
        })
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
        let space = into.initialize_unfilled();
        let most = space.len();
        let mut read = |mut connected: &S| attempt(|| connected.read(space));
        let mut done = None;
        if let Some(spin) = &mut this.spin
            && this.signals.core_is_wanted.swap(false, SeqCst)
        {
            spin.fail();
        }
        if this.is_reply_due {
            done = read(&this.connected);
            if done.is_none() && this.spin.as_mut().is_some_and(AdaptiveSpin::continues) {
                this.signals.nothing_moves.store(true, SeqCst);
                this.signals.poll_soon.store(true, SeqCst);
                return Poll::Pending;
            }
        }
        let count = loop {
            if let Some(done) = done {
                break done?;
            }
            let mut heard = ready!(this.poll_heard(false, context))?;
            done = read(heard.get_inner());
            // Less than there is room for: the rest will be reported anew. Only readiness after this point counts.
            if !matches!(done, Some(Ok(count)) if count == most) {
                heard.clear_ready();
            }
        };
        this.has_read();
        into.advance(count);
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
        loop {
            if let Some(written) = attempt(|| (&*this.connected).write(bytes)) {
                this.is_reply_due = true;
                this.signals.nothing_moves.store(false, SeqCst);
                if this.spin.as_mut().is_some_and(AdaptiveSpin::sent) {
                    this.signals.poll_soon.store(true, SeqCst);
                    // The reactor would wake the client thread for the reply.
                    if this.signals.polls_blocked.load(SeqCst) {
                        this.listening = None;
                    }
                }
                return Poll::Ready(written);
            }
            ready!(this.poll_heard(true, context))?.clear_ready();
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.connected).shutdown(Shutdown::Write))
    }
}

/// The longest spin after a request.
const MAX_SPIN: Duration = Duration::from_micros(100);

/// How many requests at most are sent without a spin after a failed one.
const MAX_SKIPPED: u32 = 256;

/// The spins of one connection. A spin fails if the reply takes longer, or if another thread needs the core. After a failure the next two
/// requests are sent without a spin, then four, and so on.
struct AdaptiveSpin {
    clock: Clock,
    /// The end of the current spin.
    until: Option<Moment>,
    /// Failed spins in a row.
    failures: u32,
    /// Requests still to be sent without a spin.
    skip: u32,
}

impl AdaptiveSpin {
    const fn new(clock: Clock) -> Self {
        Self {
            clock,
            until: None,
            failures: 0,
            skip: 0,
        }
    }

    /// A request was sent. True if the thread spins for the reply.
    fn sent(&mut self) -> bool {
        if self.until.is_none() {
            match self.skip.checked_sub(1) {
                Some(skip) => self.skip = skip,
                None => self.until = Some(self.clock.now().after(MAX_SPIN)),
            }
        }
        self.until.is_some()
    }

    /// Something was read. If that was during the spin, the next reply may come in time as well.
    fn answered(&mut self) {
        if self.until.take().is_some() {
            self.failures = 0;
        }
    }

    /// True if the spin goes on.
    fn continues(&mut self) -> bool {
        let goes_on = self.until.map(|until| self.clock.now() < until);
        if goes_on == Some(false) {
            self.fail();
        }
        goes_on == Some(true)
    }

    /// The spin gains nothing.
    fn fail(&mut self) {
        self.until = None;
        self.failures = self.failures.saturating_add(1);
        let skip = 1_u32.checked_shl(self.failures);
        self.skip = skip.map_or(MAX_SKIPPED, |skip| skip.min(MAX_SKIPPED));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    /// After a write it demands polls, until another thread needs the core. Then the reactor awaits the reply, also after the next two writes.
    #[tokio::test]
    async fn spin_ends_when_another_thread_needs_the_core() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (signals, clock) = (Arc::<Signals>::default(), Clock::manual());
        let mut socket = Socket::new(near.into_std().unwrap(), signals.clone(), false);
        socket.spin = Some(AdaptiveSpin::new(clock.clone()));
        let mut spins = async |away_us| {
            socket.write_u8(7).await.unwrap();
            let away = Duration::from_micros(away_us);
            signals.offer_core(&clock, || clock.advance(away));
            signals.poll_soon.store(false, SeqCst);
            let mut reply = pin!(socket.read_u8());
            assert!(futures_util::poll!(reply.as_mut()).is_pending());
            let spins = signals.poll_soon.load(SeqCst);
            far.write_u8(7).await.unwrap();
            reply.await.unwrap();
            spins
        };
        assert!(spins(4).await);
        assert!(!spins(5).await);
        assert!(!spins(0).await && !spins(0).await);
        assert!(spins(0).await);
    }

    fn spin() -> (AdaptiveSpin, impl Fn(u64)) {
        let clock = Clock::manual();
        let spin = AdaptiveSpin::new(clock.clone());
        (spin, move |us| clock.advance(Duration::from_micros(us)))
    }

    #[test]
    fn it_lasts_until_the_answer_or_for_a_moment() {
        let (mut spin, pass) = spin();
        assert!(!spin.continues());
        for _ in 0..3 {
            assert!(spin.sent());
            pass(99);
            assert!(spin.continues());
            spin.answered();
            assert!(!spin.continues());
        }
        assert!(spin.sent());
        pass(100);
        assert!(!spin.continues() && !spin.sent());
    }

    #[test]
    fn where_answers_take_long_few_are_waited_for() {
        let (mut spin, pass) = spin();
        let mut awake = 0;
        for _ in 0..10_000 {
            awake += u32::from(spin.sent());
            pass(500);
            spin.continues();
            spin.answered();
        }
        assert!((30..60).contains(&awake), "{awake}");
        // When replies are fast again, every request spins, from the next reply that is in time.
        for _ in 0..600 {
            spin.sent();
            pass(50);
            spin.answered();
        }
        assert!(spin.sent());
    }
}

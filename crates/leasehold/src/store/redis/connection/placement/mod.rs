//! Decides which thread does the work of a connection: the *caller's runtime*, on which the client was made, a *blocked caller*, or the
//! *client thread*.
//!
//! On the caller's runtime, a reply reaches its caller without another thread. But a program may block that runtime, or
//! end it, and it may lack I/O and timers. So the work is one future that all these threads may poll. Its timers belong to the
//! client thread.
//!
//! - A request for a poll goes to the caller's runtime. If the caller's runtime does not poll in time, the client
//!   thread polls too, until the caller's runtime comes back.
//! - The reactor of the caller's runtime listens to the socket while that one polls. Later the reactor of the client thread does.
//! - While the caller's runtime is missing or late, a caller that blocks its thread polls in answer to its own request. What it leaves is for
//!   the client thread, which polls too if the caller does not come to it in time.
//! - After a write, the thread spins for a short time ([`Socket`]), so a fast reply usually wakes no thread.
//!
//! # Invariants
//!
//! - **N1** One thread at a time polls the work.
//! - **N2** A poll begins after each request for one, within three ticks even if the caller's runtime, or a blocked caller, never polls.
//! - **N3** When the client thread ends, the work has ended: its timers and its reactor are gone.
//! - **N4** While the reactor of the caller's runtime listens, the client thread watches that runtime. It takes the socket
//!   to its own reactor within three ticks of the last poll there. So a program that blocks its runtime misses no reply.

mod signals;
mod socket;
#[cfg(test)]
mod tests;

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, poll_fn};
use tokio::runtime::Handle;

use self::signals::Signals;
pub(super) use self::socket::Socket;
use crate::clock::Clock;
use crate::runtime::{BlockedWork, Tasks};
use crate::sync::{AtomicBool, Mutex};

/// How often the client thread checks whether the caller's runtime polls when requested. It is late after two checks.
const TICK: Duration = Duration::from_millis(20);

/// Decides which thread does the work of one connection.
pub(crate) struct Placement {
    signals: Arc<Signals>,
    spins: bool,
}

impl Placement {
    /// `spins`: the polling thread spins for replies. If it awaits several servers at once, a spin for one of them would take the
    /// time of the others.
    pub(super) fn new(spins: bool) -> Self {
        Self {
            signals: Arc::default(),
            spins,
        }
    }

    /// Does the work that `make` creates, until it ends or the client thread ends. If the work panics on the caller's
    /// runtime, it is created again.
    pub(super) fn run<F>(&self, tasks: &Tasks, make: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(near) = tasks.near() {
            self.signals.near.get_or_init(|| near);
        }
        let work = self.work(tasks, make);
        let blocked: Arc<dyn BlockedWork> = work.clone();
        self.signals.work.get_or_init(|| Arc::downgrade(&blocked));
        // This future is dropped if there is no caller's runtime, or when that runtime ends.
        let caller_runtime = CallerRuntime(work.clone());
        tasks.spawn_near(poll_fn(move |context| caller_runtime.poll(context)));
        tasks.spawn_aside(ClientThread(work).run());
        self.signals.request_poll();
    }

    fn work<F>(&self, tasks: &Tasks, make: impl Fn() -> F + Send + 'static) -> Arc<ConnectionWork>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Arc::new(ConnectionWork {
            signals: self.signals.clone(),
            client_thread: tasks.handle().clone(),
            poll_again: AtomicBool::new(false),
            slot: Mutex::new(Slot {
                work: None,
                make: Some(Box::new(move || make().boxed())),
            }),
        })
    }

    /// Wraps a socket for the work to read and write.
    pub(super) fn socket<S: AsRawFd>(&self, connected: S) -> Socket<S> {
        Socket::new(connected, self.signals.clone(), self.spins)
    }
}

/// The work of one connection.
struct ConnectionWork {
    signals: Arc<Signals>,
    client_thread: Handle,
    /// The other thread tried to poll meanwhile, so the polling thread polls once more (N2).
    poll_again: AtomicBool,
    slot: Mutex<Slot>,
}

type WorkFactory = Box<dyn Fn() -> BoxFuture<'static, ()> + Send>;

struct Slot {
    /// `None` before the first poll, and after a panic.
    work: Option<BoxFuture<'static, ()>>,
    /// `None` when the work has ended.
    make: Option<WorkFactory>,
}

/// A thread that polls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poller {
    CallerRuntime,
    BlockedCaller,
    ClientThread,
}

/// When to poll again.
#[derive(PartialEq)]
enum NextPoll {
    WhenCalled,
    Soon,
    Never,
}

impl ConnectionWork {
    /// Answers a request for a poll. Ready when the work has ended.
    fn answer(&self, poller: Poller, context: &mut Context<'_>) -> Poll<()> {
        match self.poll(poller) {
            NextPoll::WhenCalled => Poll::Pending,
            NextPoll::Soon => {
                self.offer_core();
                let flag = match poller {
                    Poller::CallerRuntime => &self.signals.caller_runtime,
                    _ => &self.signals.client_thread,
                };
                flag.raise_after_others(context);
                Poll::Pending
            }
            NextPoll::Never => Poll::Ready(()),
        }
    }

    /// While nothing moves, lets another thread have the core.
    fn offer_core(&self) {
        if self.signals.nothing_moves.swap(false, SeqCst) {
            self.signals.offer_core(&Clock::system(), thread::yield_now);
        }
    }

    fn poll(&self, poller: Poller) -> NextPoll {
        loop {
            self.poll_again.store(true, SeqCst);
            let mut slot = match self.slot.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
                Err(TryLockError::WouldBlock) => return NextPoll::WhenCalled,
            };
            self.poll_again.store(false, SeqCst);
            self.signals.choose_reactor(poller == Poller::CallerRuntime);
            let is_blocked = poller == Poller::BlockedCaller;
            self.signals.polls_blocked.store(is_blocked, SeqCst);
            self.signals.blocked_owes.store(false, SeqCst);
            let next = self.poll_alone(&mut slot);
            drop(slot);
            // Checked after the lock is free: until then, the other thread found it taken (N1).
            if !self.poll_again.load(SeqCst) || next == NextPoll::Never {
                return next;
            }
            // It must not serve others without end.
            if is_blocked {
                return NextPoll::Soon;
            }
        }
    }

    fn poll_alone(&self, slot: &mut Slot) -> NextPoll {
        let Some(make) = &slot.make else {
            return NextPoll::Never;
        };
        // On either thread, callbacks run with the client thread's runtime as the current one.
        let _timers = self.client_thread.enter();
        let mut work = slot.work.take().unwrap_or_else(make);
        let waker = Waker::from(self.signals.clone());
        if work.poll_unpin(&mut Context::from_waker(&waker)).is_ready() {
            slot.make = None;
            self.signals.caller_runtime.raise();
            self.signals.client_thread.raise();
            return NextPoll::Never;
        }
        slot.work = Some(work);
        if self.signals.poll_soon.swap(false, SeqCst) {
            NextPoll::Soon
        } else {
            NextPoll::WhenCalled
        }
    }

    /// Drops the work, after the current poll if there is one.
    fn end(&self) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        (slot.work, slot.make) = (None, None);
        drop(slot);
        self.signals.caller_runtime.raise();
    }
}

impl BlockedWork for ConnectionWork {
    fn poll(&self) -> bool {
        // A panic is not that of this caller. The client thread makes the work again.
        let poll = AssertUnwindSafe(|| self.poll(Poller::BlockedCaller));
        match catch_unwind(poll) {
            Ok(NextPoll::WhenCalled) => false,
            Ok(NextPoll::Soon) => {
                self.offer_core();
                true
            }
            // Of the end, too, the client thread must hear, now that the lock is free.
            Ok(NextPoll::Never) | Err(_) => {
                self.leave();
                false
            }
        }
    }

    fn leave(&self) {
        self.signals.client_thread.raise();
    }
}

/// Polls the work on the runtime on which the client was made.
struct CallerRuntime(Arc<ConnectionWork>);

impl CallerRuntime {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let signals = &self.0.signals;
        if !signals.caller_runtime.take(context) {
            return Poll::Pending;
        }
        signals.caller_is_late.store(false, SeqCst);
        signals.caller_came.store(true, SeqCst);
        let answered = self.0.answer(Poller::CallerRuntime, context);
        if signals.caller_runtime.is_raised() {
            // This thread will poll again soon, but may be blocked before.
            signals.watch_caller();
        }
        answered
    }
}

impl Drop for CallerRuntime {
    fn drop(&mut self) {
        // From now on it stays late.
        self.0.signals.take_over();
    }
}

/// Polls the work on the client thread.
struct ClientThread(Arc<ConnectionWork>);

impl ClientThread {
    async fn run(self) {
        let (signals, clock) = (&self.0.signals, Clock::system());
        let mut was_overdue = false;
        loop {
            let watches = signals.client_watches.load(SeqCst);
            let work = poll_fn(|context| self.poll(watches, context));
            let next = if watches {
                clock.within(TICK, work).await
            } else {
                Some(work.await)
            };
            match next {
                Some(NextPoll::Never) => return,
                Some(_) => was_overdue = false,
                None => was_overdue = self.check_caller(was_overdue),
            }
        }
    }

    /// True if the caller's runtime did not poll when requested. After the second time, the client thread takes over.
    fn check_caller(&self, was_overdue: bool) -> bool {
        let is_overdue = self.0.signals.check_caller();
        if is_overdue && was_overdue {
            self.0.signals.take_over();
        }
        is_overdue
    }

    /// Answers requests for a poll until the work has ended, or the caller's runtime has to be watched.
    fn poll(&self, watches: bool, context: &mut Context<'_>) -> Poll<NextPoll> {
        let signals = &self.0.signals;
        let is_asked = signals.client_thread.take(context);
        if is_asked && self.0.answer(Poller::ClientThread, context).is_ready() {
            return Poll::Ready(NextPoll::Never);
        }
        if !watches && signals.client_watches.load(SeqCst) {
            return Poll::Ready(NextPoll::WhenCalled);
        }
        Poll::Pending
    }
}

impl Drop for ClientThread {
    fn drop(&mut self) {
        // (N3)
        self.0.end();
    }
}

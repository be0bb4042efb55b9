//! Where the work of a connection is done: *near*, on the runtime that the client was made on, or at *home*, on the client's own
//! thread. A runtime that is blocked, has ended or lacks I/O and timers must never hold it up.
//!
//! Near, an answer needs no other thread to reach its caller. But a program may block its runtime, or end it. So the work belongs
//! to neither thread: it is one future, and both may poll it. Its timers and its socket belong to home.
//!
//! - A call goes to near. If near does not come, home is called too, until near comes again.
//! - After something was sent, the last thread that polled looks for the answer for a moment ([`AdaptiveSpin`]). Only after that does
//!   home's reactor listen to the socket, so that an answer that comes at once wakes no thread.
//!
//! # Invariants
//!
//! - **N1** One thread at a time polls the work.
//! - **N2** A poll begins after each call, within three ticks even if near never comes.
//! - **N3** When home ends, the work has ended: its timers and its reactor are gone.

mod adaptive_spin;
mod signals;
mod socket;
#[cfg(test)]
mod tests;

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, poll_fn};
use tokio::runtime::Handle;
use tokio::task::coop::has_budget_remaining;

use self::adaptive_spin::AdaptiveSpin;
use self::signals::{PollSignals, WakeFlag};
pub(super) use self::socket::Socket;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::sync::{AtomicBool, Mutex};

/// How often home looks whether near comes when it is called, while it is called at all. After two looks in vain it is late.
const TICK: Duration = Duration::from_millis(20);

/// Decides which thread does the work of one connection.
pub(in crate::store::redis) struct Placement(Arc<PollSignals>);

impl Placement {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    /// Does the work that `make` makes, until it ends or the client's thread does. ConnectionWork that panics near is made again.
    pub(super) fn run<F>(&self, tasks: &Tasks, clock: Clock, make: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = self.work(tasks, clock, make);
        // Dropped where there is no such runtime, or none any more: then near is gone.
        let caller_runtime = CallerRuntime(work.clone());
        tasks.spawn_near(poll_fn(move |context| caller_runtime.poll(context)));
        tasks.spawn_aside(ClientThread(work).run());
        self.0.request_poll();
    }

    fn work<F>(
        &self,
        tasks: &Tasks,
        clock: Clock,
        make: impl Fn() -> F + Send + 'static,
    ) -> Arc<ConnectionWork>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Arc::new(ConnectionWork {
            signals: self.0.clone(),
            client_thread: tasks.handle().clone(),
            clock,
            poll_again: AtomicBool::new(false),
            slot: Mutex::new(Slot {
                work: None,
                make: Some(Box::new(move || make().boxed())),
                spin: AdaptiveSpin::default(),
            }),
        })
    }

    /// A socket that the work is to read and write.
    pub(super) fn socket<S: AsRawFd>(&self, connected: S) -> Socket<S> {
        Socket::new(connected, self.0.clone())
    }
}

/// The work of one connection.
struct ConnectionWork {
    signals: Arc<PollSignals>,
    client_thread: Handle,
    clock: Clock,
    /// A thread came while the other one polled, which then polls once more (N2).
    poll_again: AtomicBool,
    slot: Mutex<Slot>,
}

type WorkFactory = Box<dyn Fn() -> BoxFuture<'static, ()> + Send>;

struct Slot {
    /// `None` before the first poll, and after a panic.
    work: Option<BoxFuture<'static, ()>>,
    /// `None` when the work has ended.
    make: Option<WorkFactory>,
    spin: AdaptiveSpin,
}

/// When to poll again.
enum NextPoll {
    WhenCalled,
    Soon,
    Never,
}

impl ConnectionWork {
    /// Answers a call of this bell; ready when the work has ended.
    fn answer(&self, bell: &WakeFlag, context: &mut Context<'_>) -> Poll<()> {
        match self.poll() {
            NextPoll::WhenCalled => Poll::Pending,
            NextPoll::Soon => {
                bell.raise_after_others(context);
                Poll::Pending
            }
            NextPoll::Never => Poll::Ready(()),
        }
    }

    fn poll(&self) -> NextPoll {
        loop {
            self.poll_again.store(true, SeqCst);
            let mut slot = match self.slot.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
                Err(TryLockError::WouldBlock) => return NextPoll::WhenCalled,
            };
            self.poll_again.store(false, SeqCst);
            let next = self.poll_alone(&mut slot);
            drop(slot);
            // Looked at after the lock is free: who came before found it taken (N1).
            if !self.poll_again.load(SeqCst) || matches!(next, NextPoll::Never) {
                return next;
            }
        }
    }

    fn poll_alone(&self, slot: &mut Slot) -> NextPoll {
        let Some(make) = &slot.make else {
            return NextPoll::Never;
        };
        // Whoever is called back from here finds home's runtime as the current one, on either thread.
        let _timers = self.client_thread.enter();
        let waker = Waker::from(self.signals.clone());
        let mut context = Context::from_waker(&waker);
        let mut work = slot.work.take().unwrap_or_else(make);
        loop {
            self.signals.nothing_to_read.store(false, SeqCst);
            if work.as_mut().poll(&mut context).is_ready() {
                slot.make = None;
                self.signals.caller_runtime.raise();
                self.signals.client_thread.raise();
                return NextPoll::Never;
            }
            if !has_budget_remaining() {
                // Part of it may not have been polled, and waits for this thread alone.
                slot.work = Some(work);
                return NextPoll::Soon;
            }
            let keeps_spinning = self.keeps_spinning(&mut slot.spin);
            // Once more if the spin is over, so that the socket finds that it is listened to.
            if keeps_spinning || self.signals.reactor_listens.swap(true, SeqCst) {
                self.signals.reactor_listens.store(!keeps_spinning, SeqCst);
                slot.work = Some(work);
                return if keeps_spinning {
                    NextPoll::Soon
                } else {
                    NextPoll::WhenCalled
                };
            }
        }
    }

    /// Whether to look for an answer a while longer.
    fn keeps_spinning(&self, spin: &mut AdaptiveSpin) -> bool {
        let read = self.signals.read.swap(false, SeqCst);
        let wrote = self.signals.wrote.swap(false, SeqCst);
        if !wrote && !spin.is_spinning() {
            return false;
        }
        let now = self.clock.now();
        if read {
            spin.answered(now);
        }
        if wrote {
            spin.sent(now);
        }
        spin.continues(now)
    }

    /// Drops the work, after a poll that is under way.
    fn end(&self) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        (slot.work, slot.make) = (None, None);
        drop(slot);
        self.signals.caller_runtime.raise();
    }
}

/// Does the work on the runtime that the client was made on.
struct CallerRuntime(Arc<ConnectionWork>);

impl CallerRuntime {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let signals = &self.0.signals;
        if !signals.caller_runtime.take(context) {
            return Poll::Pending;
        }
        signals.caller_is_late.store(false, SeqCst);
        signals.caller_came.store(true, SeqCst);
        let answered = self.0.answer(&signals.caller_runtime, context);
        if signals.caller_runtime.is_raised() {
            // This thread is to look again soon, and may be blocked before.
            signals.watch_caller();
        }
        answered
    }
}

impl Drop for CallerRuntime {
    fn drop(&mut self) {
        self.0.signals.caller_is_gone.store(true, SeqCst);
        self.0.signals.client_thread.raise();
    }
}

/// Does the work on the client's own thread.
struct ClientThread(Arc<ConnectionWork>);

impl ClientThread {
    async fn run(self) {
        let signals = &self.0.signals;
        let mut was_overdue = false;
        loop {
            let watches = signals.client_watches.load(SeqCst);
            let work = poll_fn(|context| self.poll(watches, context));
            let next = if watches {
                self.0.clock.within(TICK, work).await
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

    /// Whether near has not come when it was called; if so twice, home does the work.
    fn check_caller(&self, was_overdue: bool) -> bool {
        let is_overdue = self.0.signals.check_caller();
        if is_overdue && was_overdue {
            self.0.signals.take_over();
        }
        is_overdue
    }

    /// Answers calls until the work has ended, or near has to be watched.
    fn poll(&self, watches: bool, context: &mut Context<'_>) -> Poll<NextPoll> {
        let signals = &self.0.signals;
        if signals.client_thread.take(context)
            && self.0.answer(&signals.client_thread, context).is_ready()
        {
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

//! Where the work of a connection is done: *near*, on the runtime that the client was made on, or at *home*, on the client's own
//! thread. A runtime that is blocked, has ended or lacks I/O and timers must never hold it up.
//!
//! Near, an answer needs no other thread to reach its caller. But a program may block its runtime, or end it. So the work belongs
//! to neither thread: it is one future, and both may poll it. Its timers and its socket belong to home.
//!
//! - A call goes to near. If near does not come, home is called too, until near comes again.
//! - After something was sent, the last thread that polled looks for the answer for a moment ([`Vigil`]). Only after that does
//!   home's reactor listen to the socket, so that an answer that comes at once wakes no thread.
//!
//! # Invariants
//!
//! - **N1** One thread at a time polls the work.
//! - **N2** A poll begins after each call, within three ticks even if near never comes.
//! - **N3** When home ends, the work has ended: its timers and its reactor are gone.

mod calls;
mod socket;
#[cfg(test)]
mod tests;
mod vigil;

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, poll_fn};
use tokio::runtime::Handle;
use tokio::task::coop::has_budget_remaining;

use self::calls::{Bell, Calls};
pub(super) use self::socket::Socket;
use self::vigil::Vigil;
use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::sync::{AtomicBool, Mutex};

/// How often home looks whether near comes when it is called, while it is called at all. After two looks in vain it is late.
const TICK: Duration = Duration::from_millis(20);

/// Decides which thread does the work of one connection.
pub(in crate::store::redis) struct Placement(Arc<Calls>);

impl Placement {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    /// Does the work that `make` makes, until it ends or the client's thread does. Work that panics near is made again.
    pub(super) fn run<F>(&self, tasks: &Tasks, clock: Clock, make: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = self.work(tasks, clock, make);
        // Dropped where there is no such runtime, or none any more: then near is gone.
        let near = Near(work.clone());
        tasks.spawn_near(poll_fn(move |context| near.poll(context)));
        tasks.spawn_aside(Home(work).run());
        self.0.call();
    }

    fn work<F>(
        &self,
        tasks: &Tasks,
        clock: Clock,
        make: impl Fn() -> F + Send + 'static,
    ) -> Arc<Work>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Arc::new(Work {
            calls: self.0.clone(),
            home: tasks.handle().clone(),
            clock,
            missed: AtomicBool::new(false),
            slot: Mutex::new(Slot {
                work: None,
                make: Some(Box::new(move || make().boxed())),
                vigil: Vigil::default(),
            }),
        })
    }

    /// A socket that the work is to read and write.
    pub(super) fn socket<S: AsRawFd>(&self, connected: S) -> Socket<S> {
        Socket::new(connected, self.0.clone())
    }
}

/// The work of one connection.
struct Work {
    calls: Arc<Calls>,
    home: Handle,
    clock: Clock,
    /// A thread came while the other one polled, which then polls once more (N2).
    missed: AtomicBool,
    slot: Mutex<Slot>,
}

type Make = Box<dyn Fn() -> BoxFuture<'static, ()> + Send>;

struct Slot {
    /// `None` before the first poll, and after a panic.
    work: Option<BoxFuture<'static, ()>>,
    /// `None` when the work has ended.
    make: Option<Make>,
    vigil: Vigil,
}

/// When to poll again.
enum Next {
    WhenCalled,
    Soon,
    Never,
}

impl Work {
    /// Answers a call of this bell; ready when the work has ended.
    fn answer(&self, bell: &Bell, context: &mut Context<'_>) -> Poll<()> {
        match self.poll() {
            Next::WhenCalled => Poll::Pending,
            Next::Soon => {
                bell.ring_after_others(context);
                Poll::Pending
            }
            Next::Never => Poll::Ready(()),
        }
    }

    fn poll(&self) -> Next {
        loop {
            self.missed.store(true, SeqCst);
            let mut slot = match self.slot.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
                Err(TryLockError::WouldBlock) => return Next::WhenCalled,
            };
            self.missed.store(false, SeqCst);
            let next = self.poll_alone(&mut slot);
            drop(slot);
            // Looked at after the lock is free: who came before found it taken (N1).
            if !self.missed.load(SeqCst) || matches!(next, Next::Never) {
                return next;
            }
        }
    }

    fn poll_alone(&self, slot: &mut Slot) -> Next {
        let Some(make) = &slot.make else {
            return Next::Never;
        };
        // Whoever is called back from here finds home's runtime as the current one, on either thread.
        let _timers = self.home.enter();
        let waker = Waker::from(self.calls.clone());
        let mut context = Context::from_waker(&waker);
        let mut work = slot.work.take().unwrap_or_else(make);
        loop {
            self.calls.is_dry.store(false, SeqCst);
            if work.as_mut().poll(&mut context).is_ready() {
                slot.make = None;
                self.calls.near.ring();
                self.calls.home.ring();
                return Next::Never;
            }
            if !has_budget_remaining() {
                // Part of it may not have been polled, and waits for this thread alone.
                slot.work = Some(work);
                return Next::Soon;
            }
            let looks_on = self.looks_on(&mut slot.vigil);
            // Once more if the vigil is over, so that the socket finds that it is listened to.
            if looks_on || self.calls.is_listened_to.swap(true, SeqCst) {
                self.calls.is_listened_to.store(!looks_on, SeqCst);
                slot.work = Some(work);
                return if looks_on {
                    Next::Soon
                } else {
                    Next::WhenCalled
                };
            }
        }
    }

    /// Whether to look for an answer a while longer.
    fn looks_on(&self, vigil: &mut Vigil) -> bool {
        let read = self.calls.read.swap(false, SeqCst);
        let wrote = self.calls.wrote.swap(false, SeqCst);
        if !wrote && !vigil.is_kept() {
            return false;
        }
        let now = self.clock.now();
        if read {
            vigil.rewarded(now);
        }
        if wrote {
            vigil.begin(now);
        }
        vigil.lasts(now)
    }

    /// Drops the work, after a poll that is under way.
    fn end(&self) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        (slot.work, slot.make) = (None, None);
        drop(slot);
        self.calls.near.ring();
    }
}

/// Does the work on the runtime that the client was made on.
struct Near(Arc<Work>);

impl Near {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let calls = &self.0.calls;
        if !calls.near.is_heard(context) {
            return Poll::Pending;
        }
        calls.near_is_late.store(false, SeqCst);
        calls.near_came.store(true, SeqCst);
        let answered = self.0.answer(&calls.near, context);
        if calls.near.is_rung() {
            // This thread is to look again soon, and may be blocked before.
            calls.watch();
        }
        answered
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.0.calls.near_is_gone.store(true, SeqCst);
        self.0.calls.home.ring();
    }
}

/// Does the work on the client's own thread.
struct Home(Arc<Work>);

impl Home {
    async fn run(self) {
        let calls = &self.0.calls;
        let mut was_overdue = false;
        loop {
            let watches = calls.home_watches.load(SeqCst);
            let work = poll_fn(|context| self.poll(watches, context));
            let next = if watches {
                self.0.clock.within(TICK, work).await
            } else {
                Some(work.await)
            };
            match next {
                Some(Next::Never) => return,
                Some(_) => was_overdue = false,
                None => was_overdue = self.look_after_near(was_overdue),
            }
        }
    }

    /// Whether near has not come when it was called; if so twice, home does the work.
    fn look_after_near(&self, was_overdue: bool) -> bool {
        let is_overdue = self.0.calls.look_for_near();
        if is_overdue && was_overdue {
            self.0.calls.take_over();
        }
        is_overdue
    }

    /// Answers calls until the work has ended, or near has to be watched.
    fn poll(&self, watches: bool, context: &mut Context<'_>) -> Poll<Next> {
        let calls = &self.0.calls;
        if calls.home.is_heard(context) && self.0.answer(&calls.home, context).is_ready() {
            return Poll::Ready(Next::Never);
        }
        if !watches && calls.home_watches.load(SeqCst) {
            return Poll::Ready(Next::WhenCalled);
        }
        Poll::Pending
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // (N3)
        self.0.end();
    }
}

//! Tasks and threads of a client. Only this module starts them; `clippy.toml` forbids it elsewhere.
//!
//! A client has its own thread with a small runtime. So renewals go on when the caller blocks its executor, a lease dropped after the
//! shutdown of the caller's runtime is still released, and the caller's futures work on any executor: they only wait for messages.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
#[cfg(feature = "redis")]
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
#[cfg(feature = "redis")]
use std::sync::{OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

#[cfg(feature = "redis")]
use tokio::net::UnixDatagram;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::unconstrained;
#[cfg(feature = "entries")]
use tokio_util::task::AbortOnDropHandle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::clock::{Clock, Moment};

/// Starts tasks and tracks when all of them have ended.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    handle: Handle,
    /// The runtime on which the client was made.
    #[cfg(any(feature = "redis", feature = "entries"))]
    near: Option<Arc<NearRuntime>>,
    tracker: TaskTracker,
    /// Whether they have their own thread.
    has_thread: bool,
    /// Whether they are tasks of shuttle instead of tokio.
    #[cfg(test)]
    explored: bool,
}

impl Tasks {
    fn of(handle: Handle, has_thread: bool) -> Self {
        Self {
            handle,
            #[cfg(any(feature = "redis", feature = "entries"))]
            near: None,
            tracker: TaskTracker::new(),
            has_thread,
            #[cfg(test)]
            explored: false,
        }
    }

    /// Tasks of the current runtime, for virtual time. `None` outside of a runtime.
    pub(crate) fn here() -> Option<Self> {
        let here = Handle::try_current().ok()?;
        Some(Self::of(here, false))
    }

    /// Tasks of the schedule that shuttle is exploring.
    #[cfg(test)]
    pub(crate) fn explored() -> Self {
        // A handle of a runtime that is never run.
        static IDLE: std::sync::LazyLock<tokio::runtime::Runtime> =
            std::sync::LazyLock::new(|| Builder::new_current_thread().build().unwrap());
        Self {
            explored: true,
            ..Self::of(IDLE.handle().clone(), false)
        }
    }

    /// Tasks of a new thread, which ends when `main`, given those tasks, has ended.
    pub(crate) fn on_thread<F>(
        name: String,
        main: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self>
    where
        F: Future<Output = ()>,
    {
        // Made here, so the caller does not wait for the thread to start.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = Self {
            #[cfg(any(feature = "redis", feature = "entries"))]
            near: Handle::try_current().ok().map(NearRuntime::of),
            ..Self::of(runtime.handle().clone(), true)
        };
        let runtime = Owned(Some(runtime));
        thread(name, move || runtime.run(main()))?;
        Ok(tasks)
    }

    /// Starts a task that [`Tasks::finished`] waits for.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        #[cfg(test)]
        if self.explored {
            return drop(shuttle::future::spawn(self.tracker.track_future(future)));
        }
        drop(self.handle.spawn(self.tracker.track_future(future)));
    }

    /// Starts a task that [`Tasks::finished`] does not wait for. It ends by itself, or with the client.
    pub(crate) fn spawn_aside(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(future));
    }

    /// Starts such a task on the runtime on which the client was made. It may never run, and may be dropped at any moment; at once if there
    /// is no such runtime.
    #[cfg(feature = "redis")]
    pub(crate) fn spawn_near(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(near) = &self.near {
            drop(near.runtime.spawn(future));
        }
    }

    /// The runtime on which the client was made, if there is one.
    #[cfg(feature = "redis")]
    pub(crate) fn near(&self) -> Option<Arc<NearRuntime>> {
        self.near.clone()
    }

    /// Runs work of a caller on the caller's runtime; without one, on the runtime on which the client was made, or else on the client's
    /// runtime. On a runtime that is gone the work ends at once. It also ends when this future is dropped.
    #[cfg(feature = "entries")]
    pub(crate) async fn run_on<T: Send + 'static>(
        &self,
        caller: &LoaderRuntime,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JobEnd<T> {
        let near = self.near.as_ref().map(|near| &near.runtime);
        let runtime = caller.0.as_ref().or(near).unwrap_or(&self.handle);
        let error = match AbortOnDropHandle::new(runtime.spawn(work)).await {
            Ok(outcome) => return JobEnd::With(outcome),
            Err(error) => error,
        };
        let Ok(said) = error.try_into_panic() else {
            return JobEnd::Gone;
        };
        let text = said.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| said.downcast_ref::<String>().cloned());
        JobEnd::Panicked(text.unwrap_or_default())
    }

    /// Polls `work` on the caller's thread, with the timers of the client's runtime: no other thread has to wake, and the caller may be on any
    /// executor. The client's thread must outlive `work`.
    pub(crate) async fn with_timers<F: Future>(&self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| {
            let _timers = self.handle.enter();
            work.as_mut().poll(context)
        })
        .await
    }

    /// While it is not dropped, [`Tasks::finished`] waits for it as for a task.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    /// Waits until all tasks started by [`Tasks::spawn`] have ended, and those that are started meanwhile. Others may be started later.
    pub(crate) async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Blocks until all such tasks have ended, at most for so long. Does nothing on the thread that has to run them.
    pub(crate) fn wait_until_finished(&self, limit: Duration) {
        let is_here = |here: Handle| here.id() == self.handle.id();
        let is_own = !self.has_thread || Handle::try_current().is_ok_and(is_here);
        if is_own || limit.is_zero() || self.tracker.is_empty() {
            return;
        }
        let (done, finished) = mpsc::sync_channel(1);
        let this = self.clone();
        self.spawn_aside(async move {
            this.finished().await;
            // Fails if the time is over.
            let _sent = done.send(());
        });
        // An error: the time is over, or the thread has ended, and with it all tasks.
        let _finished = finished.recv_timeout(limit);
    }

    /// The runtime the tasks run on.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// The runtime on which a client was made.
#[cfg(any(feature = "redis", feature = "entries"))]
#[derive(Debug)]
pub(crate) struct NearRuntime {
    runtime: Handle,
    /// Whether it has a reactor: a runtime may have been built without one. Not known before its first use.
    #[cfg(feature = "redis")]
    has_reactor: OnceLock<bool>,
}

#[cfg(any(feature = "redis", feature = "entries"))]
impl NearRuntime {
    fn of(runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            #[cfg(feature = "redis")]
            has_reactor: OnceLock::new(),
        })
    }

    /// A runtime that counts as one with a reactor.
    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn with_reactor(runtime: Handle) -> Arc<Self> {
        let has_reactor = OnceLock::from(true);
        Arc::new(Self {
            runtime,
            has_reactor,
        })
    }

    /// The runtime, if it has a reactor.
    #[cfg(feature = "redis")]
    pub(crate) fn if_it_has_reactor(&self) -> Option<&Handle> {
        let has_reactor = *self.has_reactor.get_or_init(|| self.probe());
        has_reactor.then_some(&self.runtime)
    }

    /// tokio has no query for a reactor, and panics where it is missing. A program whose panics abort is not asked.
    #[cfg(feature = "redis")]
    fn probe(&self) -> bool {
        let _near = self.runtime.enter();
        cfg!(panic = "unwind") && matches!(catch_unwind(UnixDatagram::unbound), Ok(Ok(_)))
    }
}

/// The runtime of a caller.
#[cfg(feature = "entries")]
#[derive(Debug, Clone)]
pub struct LoaderRuntime(Option<Handle>);

#[cfg(feature = "entries")]
impl LoaderRuntime {
    /// The current runtime, if there is one.
    pub fn here() -> Self {
        Self(Handle::try_current().ok())
    }
}

/// How the work of a caller ended.
#[cfg(feature = "entries")]
#[derive(Debug)]
pub enum JobEnd<T> {
    /// With this output.
    With(T),
    /// It panicked, and said this.
    Panicked(String),
    /// Its runtime was shut down.
    Gone,
}

/// The work of a connection, which a thread may do while it blocks.
pub(crate) trait BlockedWork: Send + Sync {
    /// Polls it. True if it is to be polled again soon, or left.
    fn poll(&self) -> bool;

    /// Leaves it to the client thread.
    fn leave(&self);
}

/// How long a blocked thread does such work at once, though its own answer may not come: others may ask for more and more.
const SERVES: Duration = Duration::from_millis(1);

thread_local! {
    /// The work that this thread has to poll, if it is one that blocks.
    static TO_POLL: RefCell<Option<Vec<Arc<dyn BlockedWork>>>> = const { RefCell::new(None) };
}

/// Whether this thread is one that blocks, and will poll the work at once.
#[cfg(feature = "redis")]
pub(crate) fn poll_here(work: &Weak<dyn BlockedWork>) -> bool {
    // At the end of a thread, what it still drops may come here.
    let polls = TO_POLL.try_with(|to_poll| {
        let mut to_poll = to_poll.borrow_mut();
        let (Some(to_poll), Some(work)) = (to_poll.as_mut(), work.upgrade()) else {
            return false;
        };
        to_poll.push(work);
        true
    });
    polls.unwrap_or(false)
}

/// A thread that blocks until a future is ready. Meanwhile it does the work of the connections that the future asks, so no other thread has to
/// wake for a fast reply.
#[doc(hidden)]
#[derive(Debug)]
pub struct Blocked {
    woken: Arc<Woken>,
    waker: Waker,
}

#[derive(Debug)]
struct Woken {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, SeqCst);
        self.thread.unpark();
    }
}

impl Blocked {
    /// This thread.
    pub fn here() -> Self {
        let woken = Arc::new(Woken {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
        });
        let waker = Waker::from(woken.clone());
        Self { woken, waker }
    }

    /// Polls the future until it is ready, or until this moment.
    pub fn poll_until<F: Future + ?Sized>(
        &self,
        end: Option<Moment>,
        mut future: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let clock = Clock::system();
        let mut context = Context::from_waker(&self.waker);
        loop {
            self.woken.is_woken.store(false, SeqCst);
            let poll = poll_fn(|context| self.poll(end, || future.as_mut().poll(context)));
            // The thread may be one of a runtime, whose budget is for what gives way to other tasks.
            let polled = pin!(unconstrained(poll)).poll(&mut context);
            if polled.is_ready() {
                return polled;
            }
            loop {
                let left = end.map(|end| end.since(clock.now()));
                if left == Some(Duration::ZERO) {
                    return Poll::Pending;
                }
                if self.woken.is_woken.load(SeqCst) {
                    break;
                }
                match left {
                    None => thread::park(),
                    Some(left) => thread::park_timeout(left),
                }
            }
        }
    }

    /// Polls a future, and the work that it asks for, until that has woken the future.
    fn poll<T>(&self, end: Option<Moment>, future: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let _left = ToPoll::begin();
        let polled = future();
        if polled.is_ready() {
            return polled;
        }
        let clock = Clock::system();
        let most = clock.now().after(SERVES);
        let until = end.map_or(most, |end| end.min(most));
        let mut own = ToPoll::count();
        let mut spinning: Vec<Arc<dyn BlockedWork>> = Vec::new();
        while own > 0 || clock.now() < until {
            own = own.saturating_sub(1);
            // All requests are sent before the thread looks for the reply to one.
            if let Some(work) = ToPoll::next() {
                if work.poll() && !spinning.iter().any(|other| Arc::ptr_eq(other, &work)) {
                    spinning.push(work);
                }
                continue;
            }
            if spinning.is_empty() || self.woken.is_woken.load(SeqCst) {
                break;
            }
            spinning.retain(|work| work.poll());
        }
        for work in spinning {
            work.leave();
        }
        polled
    }
}

/// Blocks this thread until the future is ready.
#[doc(hidden)]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let blocked = Blocked::here();
    loop {
        if let Poll::Ready(output) = blocked.poll_until(None, future.as_mut()) {
            return output;
        }
    }
}

/// While this exists, this thread polls the work that it asks for. The client threads do what is left, also if this thread does not come to it:
/// the future may run a program's own work.
struct ToPoll {
    /// Those of the future that polls this one.
    outer: Option<Vec<Arc<dyn BlockedWork>>>,
}

impl ToPoll {
    fn begin() -> Self {
        let outer = TO_POLL.replace(Some(Vec::new()));
        Self { outer }
    }

    fn count() -> usize {
        TO_POLL.with_borrow(|works| works.as_ref().map_or(0, Vec::len))
    }

    fn next() -> Option<Arc<dyn BlockedWork>> {
        TO_POLL.with_borrow_mut(|works| works.as_mut()?.pop())
    }
}

impl Drop for ToPoll {
    fn drop(&mut self) {
        let left = TO_POLL.replace(self.outer.take());
        for work in left.into_iter().flatten() {
            work.leave();
        }
    }
}

/// A runtime that may be dropped anywhere. tokio panics if a runtime is dropped within another one, as when a thread cannot be started.
struct Owned(Option<Runtime>);

impl Owned {
    /// Runs `main`, and ends with it.
    fn run(mut self, main: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(main);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a named thread for blocking work.
pub(crate) fn thread(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(work).map(drop)
}

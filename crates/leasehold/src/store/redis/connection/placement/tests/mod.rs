//! The placement, on real threads, and in as many schedules as shuttle draws.

mod sockets;

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex as Lock, mpsc};
use std::thread::{ThreadId, current};
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_fn};
use futures_util::task::AtomicWaker;
use shuttle::rand::{Rng, thread_rng};
use testkit::eventually;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::*;
use crate::runtime::Blocked;
use crate::sync::explore;

const PLENTY: Duration = Duration::from_secs(20);

/// Work that never ends and records which thread polled it.
#[derive(Default)]
struct Noted {
    threads: Lock<Vec<ThreadId>>,
    waker: AtomicWaker,
}

impl Noted {
    fn work(self: &Arc<Self>) -> BoxFuture<'static, ()> {
        let noted = self.clone();
        poll_fn(move |context| {
            noted.waker.register(context.waker());
            noted.threads.lock().unwrap().push(current().id());
            Poll::Pending
        })
        .boxed()
    }

    fn polls(&self) -> usize {
        self.threads.lock().unwrap().len()
    }

    /// The thread that polls after a wake.
    fn comes(&self) -> ThreadId {
        let before = self.polls();
        self.waker.wake();
        eventually(PLENTY, "the work is polled", || self.polls() > before);
        self.threads.lock().unwrap()[before]
    }
}

/// A client thread, and a runtime whose only thread can be blocked.
struct Scene {
    tasks: Tasks,
    caller_runtime: Option<Runtime>,
    /// Ends the client thread when dropped.
    open: Option<oneshot::Sender<()>>,
    client_thread: ThreadId,
    noted: Arc<Noted>,
}

fn one_worker() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).build().unwrap()
}

/// A client thread, beside the current runtime if there is one. It ends when the sender is dropped.
fn client_thread() -> (Tasks, oneshot::Sender<()>, ThreadId) {
    let (open, closed) = oneshot::channel();
    let (say, said) = mpsc::channel();
    let main = move || async move {
        say.send(current().id()).unwrap();
        drop(closed.await);
    };
    let tasks = Tasks::on_thread("client".into(), main).unwrap();
    (tasks, open, said.recv().unwrap())
}

impl Scene {
    fn begin(make: impl Fn(&Arc<Noted>) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self::of(one_worker(), &Placement::new(true), make)
    }

    /// The work that `make` creates, on this runtime.
    fn of(
        caller_runtime: Runtime,
        placement: &Placement,
        make: impl Fn(&Arc<Noted>) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        let (tasks, open, client_thread) = caller_runtime.block_on(async { client_thread() });
        let noted = Arc::<Noted>::default();
        let same = noted.clone();
        placement.run(&tasks, move || make(&same));
        eventually(PLENTY, "the work has begun", || noted.polls() > 0);
        Self {
            tasks,
            caller_runtime: Some(caller_runtime),
            open: Some(open),
            client_thread,
            noted,
        }
    }

    /// Blocks the caller's runtime until the result is dropped.
    fn block(&self) -> mpsc::Sender<()> {
        block(self.caller_runtime.as_ref().unwrap().handle())
    }
}

/// Blocks the only thread of a runtime until the result is dropped.
fn block(runtime: &Handle) -> mpsc::Sender<()> {
    let (free, freed) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    let blocks = async move {
        say.send(()).unwrap();
        freed.recv().ok();
    };
    drop(runtime.spawn(blocks));
    said.recv().unwrap();
    free
}

/// A client thread without a caller's runtime, and the work that it has begun.
struct Alone {
    noted: Arc<Noted>,
    client_thread: ThreadId,
    _placement: Placement,
    _open: oneshot::Sender<()>,
}

impl Alone {
    fn begin(
        make: impl Fn(&Arc<Noted>, ThreadId) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        let (tasks, open, client_thread) = client_thread();
        let noted = Arc::<Noted>::default();
        let (placement, same) = (Placement::new(true), noted.clone());
        placement.run(&tasks, move || make(&same, client_thread));
        // The client thread is asked twice at the begin.
        eventually(PLENTY, "the work has begun", || {
            let polls = noted.polls();
            std::thread::sleep(Duration::from_millis(20));
            polls > 0 && noted.polls() == polls
        });
        Self {
            noted,
            client_thread,
            _placement: placement,
            _open: open,
        }
    }

    /// Requests a poll as a caller that blocks, for a moment.
    fn asks(&self) {
        let asks = poll_fn(|_| {
            self.noted.waker.wake();
            Poll::<()>::Pending
        });
        let now = Clock::system().now();
        let polled = Blocked::here().poll_until(Some(now), std::pin::pin!(asks));
        assert!(polled.is_pending());
    }

    /// The threads that have polled since there were so many polls.
    fn since(&self, polls: usize) -> Vec<ThreadId> {
        self.noted.threads.lock().unwrap()[polls..].to_vec()
    }
}

#[test]
fn a_blocked_caller_polls_for_itself_where_no_runtime_does() {
    let alone = Alone::begin(|noted, _| noted.work());
    alone.asks();
    assert!(alone.since(0).contains(&current().id()));
    // A future that is ready waits for nothing.
    let before = alone.noted.polls();
    crate::block_on(async { alone.noted.waker.wake() });
    eventually(PLENTY, "a poll", || alone.noted.polls() > before);
    assert!(alone.since(before).contains(&alone.client_thread));
}

/// A future may do a program's own work, such as that of a leader (N2).
#[test]
fn client_thread_polls_for_a_blocked_caller_that_does_not_come_to_it() {
    let alone = Alone::begin(|noted, _| noted.work());
    let before = alone.noted.polls();
    crate::block_on(async {
        alone.noted.waker.wake();
        eventually(PLENTY, "a poll", || alone.noted.polls() > before);
    });
    assert!(alone.since(before).contains(&alone.client_thread));
}

/// The panic is not that of the caller.
#[test]
fn work_that_panics_on_a_blocked_caller_is_made_again() {
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let alone = Alone::begin(move |noted, client_thread| {
        let (noted, is_first) = (noted.clone(), count.fetch_add(1, SeqCst) == 0);
        poll_fn(move |context| {
            noted.waker.register(context.waker());
            noted.threads.lock().unwrap().push(current().id());
            assert!(!is_first || current().id() == client_thread, "on purpose");
            Poll::<()>::Pending
        })
        .boxed()
    });
    alone.asks();
    eventually(PLENTY, "it is made again", || made.load(SeqCst) == 2);
    assert!(alone.since(0).contains(&current().id()));
}

#[test]
fn work_ends_with_client_though_caller_runtime_goes_on() {
    let mut scene = Scene::begin(Noted::work);
    let polls = scene.noted.polls();
    assert_eq!(
        Arc::strong_count(&scene.noted),
        3,
        "here, the maker, the work"
    );
    drop(scene.open.take());
    eventually(PLENTY, "it is dropped", || {
        Arc::strong_count(&scene.noted) == 1
    });
    assert!(scene.noted.polls() <= polls + 1);
    drop(scene.tasks);
}

#[test]
fn work_that_panics_on_caller_runtime_is_made_again() {
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let scene = Scene::begin(move |noted| {
        if count.fetch_add(1, SeqCst) == 0 {
            let noted = noted.clone();
            return poll_fn(move |_| -> Poll<()> {
                noted.threads.lock().unwrap().push(current().id());
                panic!("on purpose")
            })
            .boxed();
        }
        noted.work()
    });
    eventually(PLENTY, "it goes on", || scene.noted.polls() > 1);
    assert_eq!(scene.noted.comes(), scene.client_thread);
    assert_eq!(made.load(SeqCst), 2);
}

/// A caller, a blocked one, a socket, the caller's runtime and the client thread. The caller's runtime may end, or be blocked for good, and
/// with it the reactor there. A lost request (N2, N4) ends the schedule in a deadlock, and two polls at once (N1) in a panic.
#[test]
fn each_request_is_followed_by_a_poll_in_every_schedule() {
    for (spins, has_reactor) in [(true, false), (false, false), (true, true), (false, true)] {
        explore(2_700, move || {
            each_request_is_followed_by_a_poll(spins, has_reactor)
        });
    }
}

async fn each_request_is_followed_by_a_poll(spins: bool, has_reactor: bool) {
    const CALLS: [u64; 3] = [2, 6, 2];
    let (asked, placement) = (Arc::new(AtomicU64::new(0)), Placement::new(false));
    let signals = placement.signals.clone();
    if has_reactor {
        let runtime = Tasks::explored().handle().clone();
        let near = crate::runtime::NearRuntime::with_reactor(runtime);
        signals.near.set(near).unwrap();
    }
    // A report of the caller's reactor, and the waker of that reactor.
    let reactor = Arc::new((crate::sync::AtomicBool::default(), AtomicWaker::new()));
    let (wanted, traffic) = (asked.clone(), signals.clone());
    let alone = crate::sync::AtomicBool::default();
    let polls = poll_fn(move |_| {
        assert!(!alone.swap(true, SeqCst), "another polls (N1)");
        let seen = wanted.load(SeqCst);
        // The spin of a socket.
        if spins && thread_rng().gen_bool(0.5) {
            traffic.poll_soon.store(true, SeqCst);
        }
        assert!(alone.swap(false, SeqCst));
        if seen == CALLS.iter().sum() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    let polls = Lock::new(Some(polls.boxed()));
    let work = placement.work(&Tasks::explored(), move || {
        let polls = polls.lock().unwrap().take();
        polls.unwrap_or_else(|| pending().boxed())
    });
    let caller_runtime = CallerRuntime(work.clone());
    // Its thread is busy with something else for a while, sometimes for good.
    let mut busy = 0_u32;
    let (reports, told) = (reactor.clone(), signals.clone());
    let caller_runtime = shuttle::future::spawn(poll_fn(move |context| {
        reports.1.register(context.waker());
        if busy > 0 {
            busy -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        busy = if thread_rng().gen_bool(0.2) {
            thread_rng().gen_range(1..12)
        } else {
            0
        };
        if thread_rng().gen_bool(0.15) {
            return Poll::Pending;
        }
        if reports.0.swap(false, SeqCst) {
            told.request_poll();
        }
        caller_runtime.poll(context)
    }));
    let client_thread = shuttle::future::spawn(ticking(ClientThread(work.clone())));
    let mut callers = Vec::new();
    let (wants, blocked) = (asked.clone(), signals.clone());
    callers.push(shuttle::future::spawn(async move {
        for _ in 0..CALLS[2] {
            wants.fetch_add(1, SeqCst);
            blocked.owe();
            shuttle::future::yield_now().await;
            // It may never come to it, and may have enough before all is done.
            let mut polls = thread_rng().gen_range(0..3);
            while polls > 0 && BlockedWork::poll(&*work) {
                polls -= 1;
                if polls == 0 {
                    BlockedWork::leave(&*work);
                }
            }
            shuttle::future::yield_now().await;
        }
    }));
    for is_socket in [false, true] {
        let (asked, signals, reactor) = (asked.clone(), signals.clone(), reactor.clone());
        callers.push(shuttle::future::spawn(async move {
            for _ in 0..CALLS[usize::from(is_socket)] {
                asked.fetch_add(1, SeqCst);
                if !is_socket {
                    signals.request_poll();
                } else if signals.listens_at_caller.load(SeqCst) {
                    reactor.0.store(true, SeqCst);
                    reactor.1.wake();
                } else {
                    signals.request_poll();
                }
                shuttle::future::yield_now().await;
            }
        }));
    }
    if thread_rng().gen_bool(0.2) {
        caller_runtime.abort();
    }
    for caller in callers {
        caller.await.unwrap();
    }
    client_thread.await.unwrap();
    caller_runtime.abort();
}

/// As [`ClientThread::run`], with a tick whenever there is nothing to do.
async fn ticking(client_thread: ClientThread) {
    let mut was_overdue = false;
    loop {
        let watches = client_thread.0.signals.client_watches.load(SeqCst);
        let next = poll_fn(|context| match client_thread.poll(watches, context) {
            Poll::Pending if watches => Poll::Ready(None),
            polled => polled.map(Some),
        });
        match next.await {
            Some(NextPoll::Never) => return,
            Some(_) => was_overdue = false,
            None => {
                was_overdue = client_thread.check_caller(was_overdue);
                shuttle::future::yield_now().await;
            }
        }
    }
}

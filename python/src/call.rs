//! Calls: futures of the library that a blocked thread or an event loop of asyncio polls.

use std::iter;
use std::mem;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::{Clock, Lost, PastRun, WaitStatus};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cache::Reply;
use crate::errors::{self, Failure};
use crate::{Client, Lease, once};

/// How often a blocked thread looks for signals. Ctrl-C is to end it within 100 ms.
const LOOK: Duration = Duration::from_millis(50);

/// A value that only the process that made it uses and drops. In a forked child the threads of the client are missing, and a mutex may be
/// locked for ever by one of them.
pub(crate) struct Own<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Some(value),
            process: process::id(),
        }
    }

    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here()?.value.as_ref().ok_or_else(errors::used)
    }

    /// The value, in the process that made it. Runs no Python.
    pub(crate) fn mine(&self) -> Option<&T> {
        let is_here = self.process == process::id();
        self.value.as_ref().filter(|_| is_here)
    }

    fn get_mut(&mut self) -> PyResult<&mut T> {
        self.here()?;
        self.value.as_mut().ok_or_else(errors::used)
    }

    /// The value, in the process that made it.
    pub(crate) fn into_value(mut self) -> Option<T> {
        let is_here = self.process == process::id();
        is_here.then(|| self.value.take()).flatten()
    }

    fn here(&self) -> PyResult<&Self> {
        if self.process == process::id() {
            Ok(self)
        } else {
            Err(errors::forked(self.process))
        }
    }
}

impl<T: Send> Drop for Own<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else {
            return;
        };
        if self.process == process::id() {
            // The last object of a client waits for its releases, and other threads of Python go on meanwhile.
            Python::try_attach(|py| py.detach(|| drop(value)));
        } else {
            mem::forget(value);
        }
    }
}

/// Hears that a lock is busy.
pub(crate) type OnWait = Arc<dyn Fn(&WaitStatus) + Send + Sync>;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call gives.
pub(crate) enum Answer {
    Nothing,
    IsConfirmed(bool),
    Client(leasehold::Client, Messenger),
    Lease(Lease),
    /// A run of a firing that has begun before.
    Past(PastRun),
    /// A cached value.
    Value(Arc<Vec<u8>>),
    /// The end of a lease: its loss, or none if it was released.
    End(Option<Lost>),
}

impl Answer {
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Nothing | Self::End(None) => py.None(),
            Self::IsConfirmed(is_confirmed) => is_confirmed
                .into_pyobject(py)?
                .to_owned()
                .into_any()
                .unbind(),
            Self::Client(client, messenger) => {
                Py::new(py, Client::new(client, messenger))?.into_any()
            }
            Self::Lease(lease) => Py::new(py, lease)?.into_any(),
            Self::Value(value) => PyBytes::new(py, &value).into_any().unbind(),
            Self::Past(run) => once::told(run).into_pyobject(py)?.into_any().unbind(),
            Self::End(Some(lost)) => errors::of(py, lost.into(), true).into_value(py).into_any(),
        })
    }
}

pub(crate) type Work = BoxFuture<'static, Result<Answer, Failure>>;

/// A request under way. Either a thread waits for it, or an event loop polls it. Dropping it cancels the request.
#[pyclass(frozen)]
pub(crate) struct Call {
    work: Mutex<Option<Own<Work>>>,
    /// The last wake that the request knows.
    wake: Mutex<Option<Arc<LoopWake>>>,
    /// The callback that the request calls while it waits.
    watch: Option<Arc<Py<PyAny>>>,
    messenger: Messenger,
    /// Whether the lock was held, for the errors of this call.
    held: bool,
}

impl Call {
    pub(crate) fn new(
        messenger: &Messenger,
        held: bool,
        work: impl Future<Output = Result<Answer, Failure>> + Send + 'static,
    ) -> Self {
        Self {
            work: Mutex::new(Some(Own::new(Box::pin(work)))),
            wake: Mutex::new(None),
            watch: None,
            messenger: messenger.clone(),
            held,
        }
    }

    pub(crate) fn watched_by(self, watch: Option<Arc<Py<PyAny>>>) -> Self {
        Self { watch, ..self }
    }

    fn take(&self) -> PyResult<Own<Work>> {
        let work = locked(&self.work).take();
        work.ok_or_else(errors::used)
    }

    fn answer(&self, py: Python<'_>, answer: Result<Answer, Failure>) -> PyResult<Py<PyAny>> {
        answer
            .map_err(|failure| failure.into_exception(py, self.held))?
            .into_object(py)
    }
}

#[pymethods]
impl Call {
    /// Blocks this thread, without the GIL, until the answer, or for `limit` seconds: then the answer is None. Ctrl-C cancels the request.
    #[pyo3(signature = (limit=None))]
    fn wait(&self, py: Python<'_>, limit: Option<f64>) -> PyResult<Py<PyAny>> {
        let mut work = self.take()?;
        let future = work.get_mut()?;
        let clock = Clock::system();
        let end = limit
            .map(errors::seconds)
            .transpose()?
            .map(|limit| clock.now().after(limit));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            let polled = py.detach(|| {
                let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                if polled.is_pending() {
                    let left = end.map_or(LOOK, |end| end.since(clock.now()).min(LOOK));
                    thread::park_timeout(left);
                }
                polled
            });
            if let Poll::Ready(answer) = polled {
                return self.answer(py, answer);
            }
            py.check_signals()?;
            if end.is_some_and(|end| end <= clock.now()) {
                return Ok(py.None());
            }
        }
    }

    /// Polls the request in this event loop: a tuple with the answer, or None. Then `settle(future)` is called in the loop when the request is to
    /// be polled again.
    fn poll(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        settle: Py<PyAny>,
        future: Py<PyAny>,
    ) -> PyResult<Option<(Py<PyAny>,)>> {
        let wake = Arc::new(LoopWake {
            event_loop,
            settle,
            future,
            thread: thread::current().id(),
            messages: self.messenger.0.clone(),
            is_woken: AtomicBool::new(false),
        });
        let mut work = self.take()?;
        let before = locked(&self.wake).replace(wake.clone());
        drop(before);
        let polled = work
            .get_mut()?
            .as_mut()
            .poll(&mut Context::from_waker(&Waker::from(wake)));
        match polled {
            Poll::Ready(answer) => self.answer(py, answer).map(|answer| Some((answer,))),
            Poll::Pending => {
                *locked(&self.work) = Some(work);
                Ok(None)
            }
        }
    }

    /// Cancels the request, if it is under way.
    fn close(&self) {
        let (work, wake) = (locked(&self.work).take(), locked(&self.wake).take());
        drop((work, wake));
    }

    /// The request has the future of a task, which has the request. Without this, a task of a closed loop would wait on, and get the lock.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(watch) = &self.watch {
            visit.call(&**watch)?;
        }
        // If another thread has it, the request is in use.
        if let Ok(wake) = self.wake.try_lock()
            && let Some(wake) = &*wake
        {
            visit.call(&wake.event_loop)?;
            visit.call(&wake.settle)?;
            visit.call(&wake.future)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.close();
    }
}

/// Wakes a blocked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Wakes an event loop, once.
struct LoopWake {
    event_loop: Py<PyAny>,
    settle: Py<PyAny>,
    future: Py<PyAny>,
    /// The thread of the loop.
    thread: ThreadId,
    messages: Sender<Message>,
    is_woken: AtomicBool,
}

impl LoopWake {
    fn tell(&self, py: Python<'_>, how: &str) {
        // An error: the loop was closed, and its futures with it.
        let _told = self
            .event_loop
            .call_method1(py, how, (&self.settle, &self.future));
    }
}

impl Wake for LoopWake {
    fn wake(self: Arc<Self>) {
        if self.is_woken.swap(true, Ordering::Relaxed) {
            return;
        }
        if thread::current().id() == self.thread {
            // A task of the loop has released the lock to this one. Without a value: Python is about to exit.
            let _called = Python::try_attach(|py| self.tell(py, "call_soon"));
        } else {
            // An error: the messenger has ended, and Python with it.
            let _sent = self.messages.clone().send(Message::Wake(self));
        }
    }
}

/// What the messenger tells Python.
enum Message {
    End,
    Wake(Arc<LoopWake>),
    Waiting(Arc<Py<PyAny>>, WaitStatus),
    /// A value is to be loaded: calls `load(reply)`, which returns at once.
    Load(Py<PyAny>, Reply),
}

impl Message {
    /// False if it is the last one.
    fn deliver(self, py: Python<'_>) -> bool {
        match self {
            Self::End => return false,
            Self::Wake(wake) => wake.tell(py, "call_soon_threadsafe"),
            Self::Waiting(watch, status) => {
                let told = (status.name, status.ahead, status.waited.as_secs_f64());
                if let Err(error) = watch.call1(py, told) {
                    error.write_unraisable(py, None);
                }
            }
            Self::Load(load, reply) => reply.ask(py, &load),
        }
        true
    }
}

/// The messenger of this process. Only a thread with the GIL locks it, so no other thread has it locked when the process forks.
static HERE: Mutex<Option<Own<Running>>> = Mutex::new(None);

/// A messenger, and the end of its thread.
type Running = (Messenger, Receiver<()>);

/// A thread that waits for the GIL in place of the threads of clients. A program may keep the GIL for long, and renewals must go on.
#[derive(Clone)]
pub(crate) struct Messenger(Sender<Message>);

impl Messenger {
    /// That of this process.
    pub(crate) fn here() -> PyResult<Self> {
        let mut here = locked(&HERE);
        if let Some((messenger, _)) = here.as_ref().and_then(Own::mine) {
            return Ok(messenger.clone());
        }
        let (messages, received) = mpsc::channel::<Message>();
        let (end, ended) = mpsc::channel();
        let deliver = move || {
            while let Ok(first) = received.recv() {
                let goes_on = Python::try_attach(|py| {
                    let mut messages = iter::once(first).chain(received.try_iter());
                    messages.all(|message| message.deliver(py))
                });
                if goes_on != Some(true) {
                    break;
                }
            }
            drop(received);
            drop(end);
        };
        let named = thread::Builder::new().name("leasehold-python".to_owned());
        drop(named.spawn(deliver)?);
        let messenger = Self(messages);
        *here = Some(Own::new((messenger.clone(), ended)));
        Ok(messenger)
    }

    /// Calls `watch(name, ahead, waited)` each time the store says that the lock is busy.
    pub(crate) fn on_wait(&self, watch: Arc<Py<PyAny>>) -> OnWait {
        let messages = self.0.clone();
        Arc::new(move |status: &WaitStatus| {
            // An error: as in `LoopWake`.
            let _sent = messages.send(Message::Waiting(watch.clone(), status.clone()));
        })
    }

    /// Calls `load(reply)`.
    pub(crate) fn on_load(&self) -> impl FnOnce(Py<PyAny>, Reply) + Send + 'static {
        let messages = self.0.clone();
        move |load, reply| {
            // An error: as in `LoopWake`. It drops the reply.
            let _sent = messages.send(Message::Load(load, reply));
        }
    }
}

/// How long the end of a program waits for a function of the program that the messenger calls.
const LEAVES: Duration = Duration::from_secs(5);

/// Waits until the messenger of this process has left Python. At its exit, Python would end that thread in the midst of Rust, which aborts
/// the process. A function that does not return keeps no program from its end.
#[pyfunction]
pub(crate) fn end_messenger(py: Python<'_>) {
    let here = locked(&HERE).take();
    if let Some((messenger, ended)) = here.and_then(Own::into_value) {
        // An error: it has ended.
        let _sent = messenger.0.send(Message::End);
        let _ended = py.detach(move || ended.recv_timeout(LEAVES));
    }
}

//! The requests for a poll of the work, and whether the caller's runtime answers them. No request may be lost (N2).

use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake};

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::runtime::NearRuntime;
use crate::sync::AtomicBool;

/// The requests to poll the work, and the state of the socket in the last poll.
#[derive(Default)]
pub(super) struct PollSignals {
    pub(super) caller_runtime: WakeFlag,
    pub(super) client_thread: WakeFlag,
    /// The caller's runtime did not poll when requested, and has not polled since.
    pub(super) caller_is_late: AtomicBool,
    pub(super) caller_is_gone: AtomicBool,
    /// The caller's runtime has polled since the last check.
    pub(super) caller_came: AtomicBool,
    /// The client thread checks whether the caller's runtime polls.
    pub(super) client_watches: AtomicBool,
    /// The current poll found nothing to read.
    pub(super) nothing_to_read: AtomicBool,
    pub(super) wrote: AtomicBool,
    pub(super) read: AtomicBool,
    /// No thread spins: a reactor has to listen to the socket.
    pub(super) reactor_listens: AtomicBool,
    /// The reactor of the caller's runtime listens, and not that of the client thread (N4).
    pub(super) listens_at_caller: AtomicBool,
    /// The caller's runtime. Not set if there is none.
    pub(super) near: OnceLock<Arc<NearRuntime>>,
}

impl PollSignals {
    pub(super) fn request_poll(&self) {
        if self.caller_is_gone.load(SeqCst) {
            return self.client_thread.raise();
        }
        if self.caller_is_late.load(SeqCst) {
            self.caller_runtime.raise();
            return self.client_thread.raise();
        }
        // Before: the caller's runtime may poll at once, and keeps the socket only while it is watched (N4). After: the client
        // thread may have stopped in between.
        self.watch_caller();
        self.caller_runtime.raise();
        self.watch_caller();
    }

    /// A poll was requested from the caller's runtime: the client thread checks whether it comes.
    pub(super) fn watch_caller(&self) {
        if !self.client_watches.load(SeqCst) && !self.client_watches.swap(true, SeqCst) {
            self.client_thread.waker.wake();
        }
    }

    /// The socket is ready. The client thread is awake, since its reactor reported this. A report of the caller's reactor is a
    /// request as any other.
    pub(super) fn request_poll_for_socket(&self) {
        let caller_is_there = !self.caller_is_gone.load(SeqCst)
            && !self.caller_is_late.load(SeqCst)
            && self.caller_came.load(SeqCst);
        if caller_is_there {
            self.request_poll();
        } else {
            self.client_thread.raise();
        }
    }

    /// Chooses the reactor that listens from this poll on. It is that of the caller's runtime only while that one polls, and the
    /// client thread watches it (N4).
    pub(super) fn choose_reactor(&self, caller_polls: bool) {
        let may = caller_polls && self.caller_with_reactor().is_some();
        self.listens_at_caller.store(may, SeqCst);
        // Checked after the store: whoever stops watching looks at it afterwards.
        if may && !self.client_watches.load(SeqCst) {
            self.listens_at_caller.store(false, SeqCst);
        }
    }

    /// The caller's runtime, if it has a reactor.
    pub(super) fn caller_with_reactor(&self) -> Option<&Handle> {
        self.near.get()?.if_it_has_reactor()
    }

    /// True if a poll was requested from the caller's runtime, which has not polled since the last check. If none was
    /// requested either, the client thread stops checking until one is. It then takes the socket to its own reactor (N4).
    pub(super) fn check_caller(&self) -> bool {
        let came = self.caller_came.swap(false, SeqCst);
        let is_overdue = self.caller_runtime.is_raised() && !came;
        if !came && !is_overdue {
            self.client_watches.store(false, SeqCst);
            if self.caller_runtime.is_raised() {
                self.client_watches.store(true, SeqCst);
            } else if self.listens_at_caller.load(SeqCst) {
                self.client_thread.raise();
            }
        }
        is_overdue
    }

    /// The client thread does the work until the caller's runtime polls again.
    pub(super) fn take_over(&self) {
        self.caller_is_late.store(true, SeqCst);
        self.client_watches.store(false, SeqCst);
        self.client_thread.raise();
    }
}

impl Wake for PollSignals {
    fn wake(self: Arc<Self>) {
        self.request_poll();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.request_poll();
    }
}

/// The waker of a socket in the reactor of the client thread.
pub(super) struct SocketWaker(pub(super) Arc<PollSignals>);

impl Wake for SocketWaker {
    fn wake(self: Arc<Self>) {
        self.0.request_poll_for_socket();
    }
}

/// Wakes one thread.
#[derive(Default)]
pub(super) struct WakeFlag {
    raised: AtomicBool,
    waker: AtomicWaker,
}

impl WakeFlag {
    pub(super) fn raise(&self) {
        self.raised.store(true, SeqCst);
        self.waker.wake();
    }

    pub(super) fn is_raised(&self) -> bool {
        self.raised.load(SeqCst)
    }

    /// Takes the request, if there is one.
    pub(super) fn take(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.raised.swap(false, SeqCst)
    }

    /// Raises the flag again after the other tasks of this thread have run.
    pub(super) fn raise_after_others(&self, context: &mut Context<'_>) {
        self.raised.store(true, SeqCst);
        let others = pin!(yield_now()).poll(context);
        debug_assert!(others.is_pending(), "it lets others go first");
    }
}

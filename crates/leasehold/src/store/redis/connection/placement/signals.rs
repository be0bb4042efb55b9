//! Who is called to do the work of a connection, and whether near comes when it is called. No call may be lost (N2).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Wake};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

use crate::sync::AtomicBool;

/// Who is called to do the work, and what the socket had to do with the last poll.
#[derive(Default)]
pub(super) struct PollSignals {
    pub(super) caller_runtime: WakeFlag,
    pub(super) client_thread: WakeFlag,
    /// Near did not come when it was called, and has not come since.
    pub(super) caller_is_late: AtomicBool,
    pub(super) caller_is_gone: AtomicBool,
    /// Near came since home last looked.
    pub(super) caller_came: AtomicBool,
    /// ClientThread looks whether near comes.
    pub(super) client_watches: AtomicBool,
    /// There was nothing to read in the poll that is under way.
    pub(super) nothing_to_read: AtomicBool,
    pub(super) wrote: AtomicBool,
    pub(super) read: AtomicBool,
    /// Nobody looks at the socket by itself: home has to listen to it.
    pub(super) reactor_listens: AtomicBool,
}

impl PollSignals {
    pub(super) fn request_poll(&self) {
        if self.caller_is_gone.load(SeqCst) {
            return self.client_thread.raise();
        }
        self.caller_runtime.raise();
        if self.caller_is_late.load(SeqCst) {
            self.client_thread.raise();
        } else {
            self.watch_caller();
        }
    }

    /// Near is to come: home looks whether it does.
    pub(super) fn watch_caller(&self) {
        if !self.client_watches.load(SeqCst) && !self.client_watches.swap(true, SeqCst) {
            self.client_thread.waker.wake();
        }
    }

    /// The socket has something; home is awake, since its reactor said so.
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

    /// Whether near was called, and has not come since the last look. If it was not called either, home looks no more until it is.
    pub(super) fn check_caller(&self) -> bool {
        let came = self.caller_came.swap(false, SeqCst);
        let is_overdue = self.caller_runtime.is_raised() && !came;
        if !came && !is_overdue {
            self.client_watches.store(false, SeqCst);
            if self.caller_runtime.is_raised() {
                self.client_watches.store(true, SeqCst);
            }
        }
        is_overdue
    }

    /// ClientThread does the work until near comes.
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

/// PollSignals for the socket.
pub(super) struct SocketWaker(pub(super) Arc<PollSignals>);

impl Wake for SocketWaker {
    fn wake(self: Arc<Self>) {
        self.0.request_poll_for_socket();
    }
}

/// PollSignals one thread.
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

    /// Whether it was rung since the last time.
    pub(super) fn take(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.raised.swap(false, SeqCst)
    }

    /// Rings when other tasks of this thread have had their turn.
    pub(super) fn raise_after_others(&self, context: &mut Context<'_>) {
        self.raised.store(true, SeqCst);
        let others = pin!(yield_now()).poll(context);
        debug_assert!(others.is_pending(), "it lets others go first");
    }
}

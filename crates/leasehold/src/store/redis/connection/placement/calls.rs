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
pub(super) struct Calls {
    pub(super) near: Bell,
    pub(super) home: Bell,
    /// Near did not come when it was called, and has not come since.
    pub(super) near_is_late: AtomicBool,
    pub(super) near_is_gone: AtomicBool,
    /// Near came since home last looked.
    pub(super) near_came: AtomicBool,
    /// Home looks whether near comes.
    pub(super) home_watches: AtomicBool,
    /// There was nothing to read in the poll that is under way.
    pub(super) is_dry: AtomicBool,
    pub(super) wrote: AtomicBool,
    pub(super) read: AtomicBool,
    /// Nobody looks at the socket by itself: home has to listen to it.
    pub(super) is_listened_to: AtomicBool,
}

impl Calls {
    pub(super) fn call(&self) {
        if self.near_is_gone.load(SeqCst) {
            return self.home.ring();
        }
        self.near.ring();
        if self.near_is_late.load(SeqCst) {
            self.home.ring();
        } else {
            self.watch();
        }
    }

    /// Near is to come: home looks whether it does.
    pub(super) fn watch(&self) {
        if !self.home_watches.load(SeqCst) && !self.home_watches.swap(true, SeqCst) {
            self.home.waker.wake();
        }
    }

    /// The socket has something; home is awake, since its reactor said so.
    pub(super) fn call_for_socket(&self) {
        let near_is_there = !self.near_is_gone.load(SeqCst)
            && !self.near_is_late.load(SeqCst)
            && self.near_came.load(SeqCst);
        if near_is_there {
            self.call();
        } else {
            self.home.ring();
        }
    }

    /// Whether near was called, and has not come since the last look. If it was not called either, home looks no more until it is.
    pub(super) fn look_for_near(&self) -> bool {
        let came = self.near_came.swap(false, SeqCst);
        let is_overdue = self.near.is_rung() && !came;
        if !came && !is_overdue {
            self.home_watches.store(false, SeqCst);
            if self.near.is_rung() {
                self.home_watches.store(true, SeqCst);
            }
        }
        is_overdue
    }

    /// Home does the work until near comes.
    pub(super) fn take_over(&self) {
        self.near_is_late.store(true, SeqCst);
        self.home_watches.store(false, SeqCst);
        self.home.ring();
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}

/// Calls for the socket.
pub(super) struct ForSocket(pub(super) Arc<Calls>);

impl Wake for ForSocket {
    fn wake(self: Arc<Self>) {
        self.0.call_for_socket();
    }
}

/// Calls one thread.
#[derive(Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    waker: AtomicWaker,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.rung.store(true, SeqCst);
        self.waker.wake();
    }

    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(SeqCst)
    }

    /// Whether it was rung since the last time.
    pub(super) fn is_heard(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.rung.swap(false, SeqCst)
    }

    /// Rings when other tasks of this thread have had their turn.
    pub(super) fn ring_after_others(&self, context: &mut Context<'_>) {
        self.rung.store(true, SeqCst);
        let others = pin!(yield_now()).poll(context);
        debug_assert!(others.is_pending(), "it lets others go first");
    }
}

//! The requests to poll the work, and whether the caller's runtime answers them. No request may be lost (N2).

use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Wake};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::clock::Clock;
use crate::runtime::{BlockedWork, NearRuntime, poll_here};
use crate::sync::AtomicBool;

/// The kernel comes back from an offer of the core within a microsecond if no other thread takes it.
const TAKEN: Duration = Duration::from_micros(5);

/// The requests to poll the work of one connection, and what its socket demands.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) caller_runtime: WakeFlag,
    pub(super) client_thread: WakeFlag,
    /// The caller's runtime is gone, or it did not poll when requested, and has not polled since.
    pub(super) caller_is_late: AtomicBool,
    /// The caller's runtime has polled since the last check.
    pub(super) caller_came: AtomicBool,
    /// The client thread checks whether the caller's runtime polls.
    pub(super) client_watches: AtomicBool,
    /// The reactor of the caller's runtime listens, and not that of the client thread (N4).
    pub(super) listens_at_caller: AtomicBool,
    /// The socket spins: it has to be polled again, though no reactor reports anything.
    pub(super) poll_soon: AtomicBool,
    /// A socket that spins has found nothing to read, and has written nothing since.
    pub(super) nothing_moves: AtomicBool,
    /// Another thread has taken the core that a spinning thread has offered.
    pub(super) core_is_wanted: AtomicBool,
    /// A blocked caller is to poll, and nobody has polled since.
    pub(super) blocked_owes: AtomicBool,
    /// A blocked caller polls.
    pub(super) polls_blocked: AtomicBool,
    /// What a blocked caller polls.
    pub(super) work: OnceLock<Weak<dyn BlockedWork>>,
    /// The caller's runtime. Not set if there is none.
    pub(super) near: OnceLock<Arc<NearRuntime>>,
}

impl Signals {
    pub(super) fn request_poll(&self) {
        if self.caller_is_late.load(SeqCst) {
            self.caller_runtime.raise();
            if self.work.get().is_some_and(poll_here) {
                return self.owe();
            }
            return self.client_thread.raise();
        }
        // Before: the caller's runtime may poll at once, and keeps the socket only while it is watched (N4). After: the client
        // thread may have stopped in between.
        self.watch_caller();
        self.caller_runtime.raise();
        self.watch_caller();
    }

    /// A blocked caller will poll: the client thread checks whether it comes.
    pub(super) fn owe(&self) {
        self.blocked_owes.store(true, SeqCst);
        self.watch_caller();
    }

    /// A poll was requested from the caller's runtime: the client thread checks whether it comes.
    pub(super) fn watch_caller(&self) {
        if !self.client_watches.load(SeqCst) && !self.client_watches.swap(true, SeqCst) {
            self.client_thread.waker.wake();
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

    /// True if a poll was requested from the caller's runtime or a blocked caller, and it has not polled since the last check. If none was
    /// requested either, the client thread stops checking until one is. It then takes the socket to its own reactor (N4).
    pub(super) fn check_caller(&self) -> bool {
        let came = self.caller_came.swap(false, SeqCst);
        let is_late = self.caller_is_late.load(SeqCst);
        let is_asked = || {
            let caller = !is_late && self.caller_runtime.is_raised();
            caller || self.blocked_owes.load(SeqCst)
        };
        let is_overdue = is_asked() && !came;
        if !came && !is_overdue {
            self.client_watches.store(false, SeqCst);
            if is_asked() {
                self.client_watches.store(true, SeqCst);
            } else if self.listens_at_caller.load(SeqCst) {
                self.client_thread.raise();
            }
        }
        is_overdue
    }

    /// Lets another thread have the core: it may be the server that is to reply. A spin that takes a core from others costs more than it
    /// gains.
    pub(super) fn offer_core(&self, clock: &Clock, offer: impl FnOnce()) {
        let begun = clock.now();
        offer();
        if clock.now().since(begun) >= TAKEN {
            self.core_is_wanted.store(true, SeqCst);
        }
    }

    /// The client thread does the work until the caller's runtime polls again.
    pub(super) fn take_over(&self) {
        self.caller_is_late.store(true, SeqCst);
        self.client_watches.store(false, SeqCst);
        self.client_thread.raise();
    }
}

impl Wake for Signals {
    fn wake(self: Arc<Self>) {
        self.request_poll();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.request_poll();
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

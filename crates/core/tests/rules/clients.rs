//! What the store knows of each client, and what follows from it for a waiter.

use leasehold_core::{Now, Owner, Presence, UNHEARD_GRACE, Waiter};

use crate::run::micros;

/// What the store knows of each client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clients {
    pub(crate) crashed: [bool; 3],
    pub(crate) deaf: [bool; 3],
}

impl Clients {
    pub(crate) fn crashed(self, owner: &Owner) -> bool {
        self.crashed[usize::try_from(owner.client().get()).unwrap()]
    }

    /// C4: heard of in time, and its process not gone.
    pub(crate) fn alive(self, waiter: &Waiter, now: Now) -> bool {
        waiter.seen_until_ms >= now.millis() && !self.crashed(&waiter.owner)
    }

    /// C4: alive, and someone would hear that it was granted the lock.
    pub(crate) fn able(self, waiter: &Waiter, now: Now) -> bool {
        self.alive(waiter, now) && !(waiter.listening && self.waiter_gone(waiter))
    }

    /// C6: alive, but nobody would hear it, and not for longer than that.
    pub(crate) fn passed_over(self, waiter: &Waiter, now: Now) -> bool {
        let until = now.millis() + micros(UNHEARD_GRACE) / 1_000;
        self.alive(waiter, now) && !self.able(waiter, now) && waiter.seen_until_ms <= until
    }
}

impl Presence for Clients {
    fn holder_gone(&self, owner: &Owner) -> bool {
        self.crashed(owner)
    }

    fn waiter_gone(&self, waiter: &Waiter) -> bool {
        let client = usize::try_from(waiter.owner.client().get()).unwrap();
        self.crashed[client] || self.deaf[client]
    }
}
